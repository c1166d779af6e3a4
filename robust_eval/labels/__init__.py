"""Labels that people give to answers: which answers are drawn for them, and what they say."""
