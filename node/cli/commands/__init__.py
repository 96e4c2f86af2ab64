"""Declarations of the commands: names, options and help texts, one file a group, each with `register`."""
