"""Rewriters: sources of other wordings of a question, recorded ones or those of a language model."""
