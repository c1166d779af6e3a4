"""What a program needs of the machine around it, and nothing of the field."""
