"""General tools: terminal, files, processes, cache, registry. Nothing here knows about language models."""
