"""Logs: structured events on standard error, as lines for people or JSON for machines.

Invariants
1. Library code logs through structlog with one event name per thing and keys; nothing prints.
2. Values under keys that name secrets are masked, and URLs lose their query and credentials, before writing.
3. Standard output is never written to: it belongs to commands.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from config.settings import LogSettings

_SECRET = re.compile(r"(seed|mnemonic|password|secret|token|private)", re.IGNORECASE)
_URL = re.compile(r"\b([a-z][a-z0-9+.-]*://)([^/?#\s@]*@)?([^\s?#]*)([?#]\S*)?")
_VALUE_CHARACTERS = 2000


def configure(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Set up structlog for this process: level and format from `settings`, to `stream` (standard error)."""
    target = stream if stream is not None else sys.stderr
    last: Processor = (
        structlog.processors.JSONRenderer() if settings.format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback  # local variables stay private
        )
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info if settings.format == "json" else _keep,
            redact,
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[settings.level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(target),
        cache_logger_on_first_use=False,
    )


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Mask secrets, shorten URLs and bound the length of every text value."""
    for key, value in event.items():
        if _SECRET.search(key) and key != "token":  # a fencing token is a small number and no secret
            event[key] = "***"
        elif isinstance(value, str):
            event[key] = _URL.sub(r"\1\3", value)[:_VALUE_CHARACTERS]
    return event


def _keep(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return event
