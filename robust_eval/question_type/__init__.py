"""Question types (a person, a place, a number), predicted by a fine-tuned text encoder."""
