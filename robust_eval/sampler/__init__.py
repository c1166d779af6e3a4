"""Which answers to ask for."""
