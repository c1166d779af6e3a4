"""How firmly does a language model hold the facts that it answers right?"""

__version__ = "0.1.0"
