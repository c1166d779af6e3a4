"""Requests to services: HTTP, inspect_ai, batches."""
