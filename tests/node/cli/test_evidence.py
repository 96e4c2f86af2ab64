"""regrade and receipt verify: verdicts and signatures checked again, offline."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from config.arena import Arena
from scoring.attempt import Attempt, Launch, attempt_digest, encode_attempt
from scoring.dsse import public_key, sign
from scoring.grade import grade
from scoring.receipts import verdict_statement
from tests.scoring.support import FakeReferee, change, make_arena

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
    published = folder.parent / f"{attempt_digest(data)}.json.gz"  # as `receipt export` lays it out
    (folder / published.name).rename(published)
    assert cli("regrade", str(published), "--json").document["data"]["outcome"] == "PASS"
    assert cli("regrade", attempt_digest(data), "--state", "state", "--json").document["data"]["outcome"] == "PASS"


def reproduction(primary: Attempt, **changes: Any) -> Attempt:
    """Return an attempt that names `primary`'s file and used other cores."""
    second = FakeReferee(ARENA, gain=0.4, number=2).measure(
        role="reproduction", previous_attempt=attempt_digest(encode_attempt(primary))
    )
    return msgspec.structs.replace(second, **changes)


def test_regrade_of_a_pair_says_what_it_earns_or_which_rule_it_breaks(
    cli: RunCli, tmp_path: Path, arena: str
) -> None:
    """Two files, offline: both verdicts, the rule that the pair breaks, and the credited speed-up."""
    one_core = change(FAST, "environment.cores", (1, 1))
    primary = msgspec.structs.replace(one_core, launches=tuple(on_core(launch) for launch in one_core.launches))
    second = reproduction(primary)
    second = change(second, "environment.cores", (1, 1))
    second = msgspec.structs.replace(second, launches=tuple(on_core(launch) for launch in second.launches))
    (tmp_path / "one.json").write_bytes(encode_attempt(primary))
    (tmp_path / "two.json").write_bytes(gzip.compress(encode_attempt(second)))
    ran = cli("regrade", "one.json", "two.json", "--arena", arena, "--json")
    data = ran.document["data"]
    assert (ran.code, data["broken_rule"]) == (0, "")
    assert data["credited_ppm"] == min(data["first"]["lower_ppm"], data["second"]["lower_ppm"]) > 1_050_000
    assert data["first"]["schema"] == "cacheon.attempt.v2"
    assert "credited" in cli("regrade", "one.json", "two.json", "--arena", arena).out
    exchanged = cli("regrade", "two.json", "one.json", "--arena", arena, "--json")
    assert (exchanged.code, exchanged.document["data"]["broken_rule"]) == (3, "PAIR_ROLES")
    assert exchanged.document["data"]["credited_ppm"] == 0
    assert "PAIR_ROLES" in cli("regrade", "two.json", "one.json", "--arena", arena).out


def on_core(launch: Launch) -> Launch:
    """Return `launch` with both arms on core 1."""
    return change(change(launch, "baseline.core", 1), "candidate.core", 1)


def test_regrade_reads_older_files_and_says_of_which_schema_they_are(cli: RunCli, tmp_path: Path, arena: str) -> None:
    """A file of the first schema gets the same verdict; one of a schema to come is refused with a code."""
    older = encode_attempt(msgspec.structs.replace(FAST, schema="cacheon.attempt.v1"))
    (tmp_path / "older.json").write_bytes(older)
    shown = cli("regrade", "older.json", "--arena", arena, "--json").document["data"]
    assert (shown["schema"], shown["policy"], shown["outcome"]) == ("cacheon.attempt.v1", "cacheon.speed.v1", "PASS")
    assert shown["lower_ppm"] == grade(FAST, ARENA).lower_ppm
    (tmp_path / "newer.json").write_bytes(older.replace(b"cacheon.attempt.v1", b"cacheon.attempt.v7"))
    newer = cli("regrade", "newer.json", "--arena", arena, "--json")
    assert (newer.code, newer.document["error"]["code"]) == (3, "ATTEMPT_SCHEMA_UNKNOWN")


def test_regrade_as_after_a_review(cli: RunCli, tmp_path: Path) -> None:
    """What waits for a person's eyes passes once somebody has looked; the exit code says pending until then."""
    doubtful = make_arena(implausible_speedup_ppm=1_100_000)
    (tmp_path / "doubtful.toml").write_text(to_toml(doubtful), "utf-8")
    (tmp_path / "attempt.json").write_bytes(encode_attempt(FakeReferee(doubtful, gain=0.5).measure()))
    waits = cli("regrade", "attempt.json", "--arena", "doubtful.toml", "--json")
    assert (waits.code, waits.document["data"]["code"]) == (7, "IMPLAUSIBLE_SPEEDUP")
    seen = cli("regrade", "attempt.json", "--arena", "doubtful.toml", "--reviewed", "--json")
    assert (seen.code, seen.document["data"]["outcome"]) == (0, "PASS")
