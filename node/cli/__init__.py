"""The `cacheon` command: data on standard output, talk on standard error, one exit code per kind of failure.

Nothing in this package imports torch, the chain SDK or the store at start-up: command bodies are imported when
they run.
"""
