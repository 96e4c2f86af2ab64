"""Bodies of the commands, one module per command, imported only when that command runs."""
