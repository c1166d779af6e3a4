"""Commands of ``robust-eval``, one file each."""
