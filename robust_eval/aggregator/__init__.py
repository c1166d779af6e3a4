"""What the answers to one question say together: which mean the same, and which one was voted for."""
