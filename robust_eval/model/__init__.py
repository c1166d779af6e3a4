"""Language models: what can be asked of one, and how each kind gets it cheaply."""
