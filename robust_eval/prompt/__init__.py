"""Prompts of questions, from templates and exemplars, as messages or as plain text."""
