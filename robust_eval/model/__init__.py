"""Language models: base classes, Python functions as models, and models that are local or behind a server."""
