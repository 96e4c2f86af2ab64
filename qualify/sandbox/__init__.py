"""Isolation of foreign code: a warm fork server and the layers around each of its children."""
