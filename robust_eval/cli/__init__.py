"""Commands: one file each, and what stands between a command line and the program."""
