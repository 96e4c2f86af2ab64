"""regrade and receipt verify: verdicts and signatures checked again, offline."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from config.arena import Arena
from scoring.attempt import attempt_digest, encode_attempt
from scoring.dsse import public_key, sign
from scoring.grade import grade
from scoring.receipts import verdict_statement
from tests.scoring.support import FakeReferee, make_arena

if TYPE_CHECKING:
    from tests.node.cli.conftest import RunCli

ARENA = make_arena()
FAST = FakeReferee(ARENA, gain=0.5).measure()
SLOW = FakeReferee(ARENA, gain=-0.5).measure()
SECRET = bytes(range(32))


@pytest.fixture
def arena(tmp_path: Path) -> str:
    """The arena of the attempts as a file."""
    (tmp_path / "arena.toml").write_text(to_toml(ARENA), "utf-8")
    return "arena.toml"


def to_toml(arena: Arena) -> str:
    """Write an arena document."""
    document: dict[str, Any] = msgspec.to_builtins(arena)
    workloads = document.pop("workloads")
    lines = [f"{key} = {json.dumps(value)}" for key, value in document.items()]
    for load in workloads:
        shapes = ", ".join(
            "{ " + ", ".join(f"{name} = {size}" for name, size in one.items()) + " }" for one in load["shapes"]
        )
        lines += ["[[workloads]]", f'target = "{load["target"]}"', f'dtype = "{load["dtype"]}"', f"shapes = [{shapes}]"]
    return "\n".join(lines)


@pytest.mark.parametrize(("attempt", "code"), [(FAST, 0), (SLOW, 3)], ids=["fast", "slow"])
def test_regrade_gives_the_same_verdict(cli: RunCli, tmp_path: Path, arena: str, attempt: Any, code: int) -> None:
    """The command's verdict is the grader's, plain or gzipped, and the exit code says PASS or FAIL."""
    data = encode_attempt(attempt)
    (tmp_path / "attempt.json").write_bytes(data)
    (tmp_path / "attempt.json.gz").write_bytes(gzip.compress(data))
    expected = msgspec.to_builtins(grade(attempt, ARENA))
    for name in ("attempt.json", "attempt.json.gz"):
        ran = cli("regrade", name, "--arena", arena, "--json")
        assert ran.code == code
        shown = ran.document["data"]
        assert {key: shown[key] for key in ("outcome", "code", "blame", "lower_ppm", "upper_ppm", "reason")} == {
            key: expected[key] for key in ("outcome", "code", "blame", "lower_ppm", "upper_ppm", "reason")
        }
        assert shown["digest"] == attempt_digest(data)
    assert expected["outcome"] in cli("regrade", "attempt.json", "--arena", arena).out


def test_regrade_by_digest(cli: RunCli, tmp_path: Path, arena: str) -> None:
    """With a state folder an attempt is found by digest, and its bytes must have that digest."""
    data = encode_attempt(FAST)
    digest = attempt_digest(data)
    folder = tmp_path / "state" / "attempts" / "some-attempt"
    folder.mkdir(parents=True)
    (folder / f"{digest}.json.gz").write_bytes(gzip.compress(data))
    assert cli("regrade", digest, "--state", "state", "--arena", arena, "--json").document["data"]["digest"] == digest
    (folder / f"{digest}.json.gz").write_bytes(gzip.compress(encode_attempt(SLOW)))
    changed = cli("regrade", digest, "--state", "state", "--arena", arena, "--json")
    assert changed.code == 3
    assert changed.document["error"]["code"] == "ATTEMPT_DIGEST_MISMATCH"
    missing = cli("regrade", "0" * 64, "--state", "state", "--json")
    assert missing.code == 7
    assert missing.document["error"]["code"] == "ATTEMPT_NOT_FOUND"


@pytest.mark.parametrize(
    ("data", "code", "exit_code"),
    [
        (b"not json", "ATTEMPT_NOT_CANONICAL", 3),
        (b"\x1f\x8bnot gzip", "ATTEMPT_MALFORMED", 3),
        (gzip.compress(b"{}", mtime=0)[:-4], "ATTEMPT_MALFORMED", 3),
        (gzip.compress(b"{}", mtime=0) + b"more", "ATTEMPT_MALFORMED", 3),
        (b"{}", "ATTEMPT_SCHEMA_UNKNOWN", 3),
        (gzip.compress(bytes(65 * 1024 * 1024), mtime=0), "ATTEMPT_TOO_LARGE", 3),
        (None, "ATTEMPT_NOT_FOUND", 7),
    ],
)
def test_what_is_no_attempt(cli: RunCli, tmp_path: Path, data: bytes | None, code: str, exit_code: int) -> None:
    """Bytes that are no attempt are refused with a code, a bomb without unpacking it."""
    if data is not None:
        (tmp_path / "attempt").write_bytes(data)
    ran = cli("regrade", "attempt", "--json")
    assert (ran.code, ran.document["error"]["code"]) == (exit_code, code)


def test_receipt_verify(cli: RunCli, tmp_path: Path) -> None:
    """A receipt is good under the key that signed it and under no other, and not after a change."""
    verdict = grade(FAST, ARENA)
    data = sign(verdict_statement(FAST, attempt_digest(encode_attempt(FAST)), verdict), SECRET)
    (tmp_path / "receipt.json").write_bytes(data)
    key = public_key(SECRET).hex()
    good = cli("receipt", "verify", "receipt.json", "--key", key, "--json")
    assert good.code == 0
    assert good.document["data"]["kind"].endswith("verdict.v1")
    assert good.document["data"]["predicate"]["verdict"]["outcome"] == "PASS"
    other = cli("receipt", "verify", "receipt.json", "--key", "0" * 64, "--json")
    assert (other.code, other.document["error"]["code"]) == (3, "RECEIPT_UNTRUSTED")
    nonsense = cli("receipt", "verify", "receipt.json", "--key", "xyz", "--json")
    assert (nonsense.code, nonsense.document["error"]["code"]) == (2, "RECEIPT_KEY_NOT_HEX")
    missing = cli("receipt", "verify", "nowhere.json", "--key", key, "--json")
    assert (missing.code, missing.document["error"]["code"]) == (7, "RECEIPT_NOT_FOUND")


def test_regrade_uses_the_arena_that_the_node_kept(cli: RunCli, tmp_path: Path) -> None:
    """An attempt in a node's folder is graded by the arena document kept there, not by a built-in one."""
    data = encode_attempt(FAST)
    folder = tmp_path / "state" / "attempts" / "some-attempt"
    folder.mkdir(parents=True)
    (folder / f"{attempt_digest(data)}.json.gz").write_bytes(gzip.compress(data))
    without = cli("regrade", attempt_digest(data), "--state", "state", "--json")
    assert without.document["error"]["code"] == "ARENA_NOT_FOUND"
    (tmp_path / "state" / "arenas").mkdir()
    (tmp_path / "state" / "arenas" / f"{ARENA.digest}.toml").write_text(to_toml(ARENA), "utf-8")
    assert cli("regrade", attempt_digest(data), "--state", "state", "--json").document["data"]["outcome"] == "PASS"
