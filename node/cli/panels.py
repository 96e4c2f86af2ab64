"""Headings under which `cacheon --help` lists the commands."""

from __future__ import annotations

MINER, OPERATOR, LOOKUP = "For miners", "For operators", "Look things up"
