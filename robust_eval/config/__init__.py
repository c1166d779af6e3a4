"""Configuration: the schemas of its groups, its checks, and the objects of a run."""
