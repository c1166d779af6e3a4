"""The configuration: the schemas of its groups, what is checked of it, and the objects that it describes."""
