"""One experiment, from its questions to its record."""
