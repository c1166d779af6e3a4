"""May a candidate replace its baseline? The decision, what it rests on, and what pipelines and people read of it."""
