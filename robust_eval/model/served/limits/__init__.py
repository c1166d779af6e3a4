"""Limits of the requests to a service: concurrency, rates, budget, retries."""
