"""The envelope and the streams."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from config.errors import ErrorDocument
from node.cli.output import tao_text
from node.envelope import failure_line, schema_of, success_line

if TYPE_CHECKING:
    from tests.node.cli.conftest import RunCli


def test_success_envelope() -> None:
    """Data is wrapped in schema and ok, on one line."""
    assert success_line("node status", {"a": 1}) == b'{"schema":"cacheon.node-status.v1","ok":true,"data":{"a":1}}\n'


def test_failure_envelope_has_all_keys() -> None:
    """The error always has its five keys, empty ones too."""
    line = failure_line("", ErrorDocument("CODE", "sentence"))
    assert json.loads(line) == {
        "schema": "cacheon.v1",
        "ok": False,
        "error": {"code": "CODE", "message": "sentence", "hint": "", "blame": "", "location": ""},
    }
    assert schema_of("config show") == "cacheon.config-show.v1"


def test_json_is_never_coloured(cli: RunCli) -> None:
    """FORCE_COLOR colours talk, never JSON; standard error stays silent with --json."""
    ran = cli("targets", "--json", env={"FORCE_COLOR": "1"})
    assert ran.document["ok"] is True
    assert "\x1b" not in ran.out
    assert ran.err == ""


def test_json_on_failure(cli: RunCli) -> None:
    """A failure with --json is the envelope on standard output, with the exit code of the family."""
    ran = cli("explain", "NO_SUCH", "--json", env={"FORCE_COLOR": "1"})
    assert ran.code == 7
    assert ran.document["schema"] == "cacheon.explain.v1"
    assert ran.document["error"]["code"] == "CODE_UNKNOWN"
    assert ran.err == ""


def test_json_for_a_bad_command_line(cli: RunCli) -> None:
    """Even a command line that cannot be parsed answers in JSON when asked to."""
    ran = cli("explain", "--nonsense", "--json")
    assert ran.code == 2
    assert ran.document["error"]["code"] == "USAGE"


def test_no_colour_without_a_terminal(cli: RunCli) -> None:
    """Piped errors carry no ANSI, and data and talk do not mix."""
    ran = cli("explain", "NO_SUCH")
    assert ran.out == ""
    assert "\x1b" not in ran.err
    assert ran.err.startswith("error[CODE_UNKNOWN]")


def test_no_color_is_honoured(cli: RunCli) -> None:
    """NO_COLOR wins over FORCE_COLOR for colours."""
    forced = cli("explain", "NO_SUCH", env={"FORCE_COLOR": "1"})
    plain = cli("explain", "NO_SUCH", env={"FORCE_COLOR": "1", "NO_COLOR": "1"})
    assert "31m" in forced.err
    assert "31m" not in plain.err


@pytest.mark.parametrize(
    ("rao", "text"),
    [
        (0, "0 TAO (0 rao)"),
        (1, "0.000000001 TAO (1 rao)"),
        (1_500_000_000, "1.5 TAO (1500000000 rao)"),
        (100_000_000_000, "100 TAO (100000000000 rao)"),
    ],
)
def test_amounts_are_exact_in_both_units(rao: int, text: str) -> None:
    """A person reads TAO, the chain counts rao; neither is rounded."""
    assert tao_text(rao) == text
