"""General tools without language models: terminal, files, processes, cache, registry."""
