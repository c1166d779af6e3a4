"""Gate: may a candidate replace its baseline? Decision, single facts, and files for pipelines and people."""
