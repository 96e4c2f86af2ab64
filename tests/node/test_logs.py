"""Logs: machine-readable when asked, and never a secret."""

from __future__ import annotations

import io
import json

import pytest
import structlog

from config.settings import LogSettings
from node import logs


def lines(**settings: str) -> tuple[io.StringIO, structlog.typing.FilteringBoundLogger]:
    """Return a stream and a logger that writes to it."""
    stream = io.StringIO()
    logs.configure(LogSettings(**settings), stream)
    return stream, structlog.get_logger()


def test_json_lines() -> None:
    """In JSON format every event is one object with a level, a time and its keys."""
    stream, log = lines(format="json")
    log.info("job.moved", submission="s", token=3)
    log.warning("other")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["event"], first["level"], first["submission"], first["token"]) == ("job.moved", "info", "s", 3)
    assert second["level"] == "warning"
    assert first["timestamp"].endswith("Z")


@pytest.mark.parametrize("format_", ["json", "console"])
def test_secrets_are_masked(format_: str) -> None:
    """Values under secret names, credentials and queries in URLs do not appear."""
    stream, log = lines(format=format_)
    log.info("x", seed="hunter2", api_token="hunter2", url="https://user:hunter2@host/a.tar.gz?sig=hunter2#hunter2")
    text = stream.getvalue()
    assert "hunter2" not in text
    assert "https://host/a.tar.gz" in text


@pytest.mark.parametrize("format_", ["json", "console"])
def test_tracebacks_show_no_local_variables(format_: str) -> None:
    """An exception is logged with its message and place, not with the values around it."""
    stream, log = lines(format=format_)
    hidden = "hunter2".upper()
    try:
        assert hidden
        raise ValueError("visible")
    except ValueError as error:
        log.error("failed", exc_info=error)
    assert "visible" in stream.getvalue()
    assert "HUNTER2" not in stream.getvalue()


def test_level_filters() -> None:
    """Events below the configured level are dropped."""
    stream, log = lines(level="error")
    log.warning("quiet")
    assert stream.getvalue() == ""


def test_long_values_are_cut() -> None:
    """No single value makes a line endless."""
    stream, log = lines(format="json")
    log.info("x", value="y" * 100_000)
    assert len(stream.getvalue()) < 3000
