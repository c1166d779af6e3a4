"""Commands of the command line ``robust-eval``, one file each."""
