"""The hostile corpus: one folder per cheat, run against the real referee with the static scan switched off.

Each folder holds a `bundle/` and an `expected.toml`: the row of the catalogue, the mechanism, the codes any of which
counts as detection, and whether an outcome without incident is right too (the cheat gains nothing and does no harm).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tomli

from config.arena import Arena, load_arena
from qualify.referee import run_attempt
from qualify.sandbox.client import Zygote
from scoring.attempt import Attempt
from scoring.incidents import consequence
from tests.qualify.support import describe_bundle, make_request

CORPUS = Path(__file__).resolve().parent
NAMES = sorted(path.parent.name for path in CORPUS.glob("*/expected.toml"))


@dataclass(frozen=True)
class Result:
    """What one row of the corpus did: `status` is `detected`, `harmless`, `cheat succeeded` or `incomplete`."""

    name: str
    row: str
    status: str
    code: str
    detail: str


def run_row(name: str, arena_path: str, scratch: Path, fork_server: Zygote) -> Result:
    """Run one folder of the corpus."""
    expected = tomli.loads((CORPUS / name / "expected.toml").read_text())
    reference = describe_bundle(CORPUS / name / "bundle", scratch / f"{name}.json")
    attempt = run_attempt(make_request(reference, arena_path), lambda event: None, fork_server)
    code, detail = outcome(attempt, load_arena(arena_path))
    if code in expected["codes"] or (not code and expected["harmless"]):
        status = "detected" if code else "harmless"
    else:
        status = "incomplete" if code else "cheat succeeded"
    return Result(name, expected["row"], status, code, detail)


def outcome(attempt: Attempt, arena: Arena) -> tuple[str, str]:
    """Return the code and detail of the incident that ended the attempt, or empty text when all checks held."""
    if not attempt.incidents:
        assert len(attempt.launches) == arena.launches_max
        return "", ""
    incident = attempt.incidents[0]
    assert incident.role == "candidate", incident
    return consequence(incident).code, incident.detail
