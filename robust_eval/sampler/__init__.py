"""Samplers: generators of requests."""
