"""A folder of published receipts as a hostile server hands it out: read to the end, refused, never waited for."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chain.key_binding import binding_of
from chain.wallet import address_of_seed, signer_of_seed
from config.canonical import sha256_hex
from config.errors import CacheonError
from config.key_binding import binding_payload
from config.limits import EVIDENCE, RECEIPT_BYTES
from config.statement import pre_authentication, seal
from node.cli.actions import weights_explain, weights_recompute
from node.cli.output import visible
from node.receipt_folder import DOCUMENT_BYTES, open_folder
from scoring.dsse import public_key
from scoring.receipts import weights_statement
from scoring.walk import Walk, walk
from tests.node.cli.test_evidence import to_toml
from tests.scoring import receipts_world
from tests.scoring.receipts_world import GENESIS_HASH, POLICY, ReceiptsWorld, two_crowns

VALIDATOR, NAME = address_of_seed("//Validator"), "a" * 64


def bind(world: ReceiptsWorld, seed: str = "//Validator", secret: bytes = b"") -> None:
    """Have a hotkey vouch for a receipt key of the world."""
    signer = signer_of_seed(seed)
    payload = binding_payload(binding_of(signer, public_key(secret or world.secret), GENESIS_HASH, 2))
    data = seal(payload, signer.ss58_address, bytes(signer.sign(pre_authentication(payload))))
    world.envelopes[sha256_hex(data)] = data


def write(world: ReceiptsWorld, folder: Path) -> Path:
    """Write a world as it is published."""
    return world.write(folder, to_toml(world.arena_document))


@pytest.fixture(name="original", scope="module")
def _original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    world = two_crowns(validator=VALIDATOR)
    bind(world)
    return write(world, tmp_path_factory.mktemp("published"))


@pytest.fixture(name="folder")
def _folder(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "out")
    return tmp_path / "out"


def walked(folder: Path, **who: Any) -> Walk:
    """Walk the newest vector of a folder."""
    source = open_folder(folder)
    return walk(source.published(source.anchor(**who)), source)


def refused(folder: Path, **who: Any) -> tuple[str, str]:
    """The code and the sentence with which a folder is refused."""
    with pytest.raises(CacheonError) as found:
        walked(folder, **who)
    return found.value.code, str(found.value)


def every(folder: Path, kind: str, change: Callable[[Path], None]) -> None:
    """Put something else in the place of every file of a kind."""
    for path in list((folder / kind).iterdir()):
        path.unlink()
        change(path)


def huge(path: Path, size: int) -> None:
    """Make a file of that size that takes no room."""
    with path.open("wb") as stream:
        stream.truncate(size)


@pytest.mark.parametrize("kind", ["attempts", "arenas", "targets", "receipts"])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (os.mkfifo, "no regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "no regular file"),
        (lambda path: path.symlink_to(path.name), "symbolic links"),
        (lambda path: path.mkdir(), "irectory"),
        (lambda path: huge(path, 1 << 40), "more than"),
    ],
    ids=["pipe", "device", "loop", "folder", "huge"],
)
def test_what_is_no_file_is_refused_and_not_waited_for(
    folder: Path, kind: str, change: Callable[[Path], None], says: str
) -> None:
    """In the place of any document; memory and time stay those of a good one."""
    every(folder, kind, change)
    code, sentence = refused(folder)
    assert (code, says in sentence) == ("RECEIPT_UNREADABLE", True), sentence


def test_names_that_are_no_digests_are_refused(folder: Path) -> None:
    """Whatever bytes they have."""
    with open(os.fsencode(folder / "receipts") + b"/\xff\xfe.json", "wb"):
        pass
    assert refused(folder)[0] == "RECEIPT_UNREADABLE"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (gzip.compress(bytes(EVIDENCE.attempt_bytes + 10), 1), "ATTEMPT_TOO_LARGE"),
        (gzip.compress(b"{}")[:-3], "RECEIPT_UNREADABLE"),
        (gzip.compress(b"{}") + b"more", "RECEIPT_UNREADABLE"),
        (b"no gzip", "RECEIPT_UNREADABLE"),
        (b"", "RECEIPT_UNREADABLE"),
    ],
    ids=["bomb", "cut", "longer", "plain", "empty"],
)
def test_attempt_files_unpack_within_bounds(folder: Path, content: bytes, code: str) -> None:
    """More than an attempt can have, less than was packed, or something behind it."""
    every(folder, "attempts", lambda path: path.write_bytes(content) and None)
    assert refused(folder)[0] == code


def test_a_document_of_the_largest_size_is_read(folder: Path) -> None:
    """The limits are those of what is named by a digest, so a good folder never meets them."""
    sizes = {kind: max(path.stat().st_size for path in (folder / kind).iterdir()) for kind in ("arenas", "receipts")}
    assert sizes["arenas"] < DOCUMENT_BYTES
    assert sizes["receipts"] < RECEIPT_BYTES


def test_whose_key_it_is_is_proved_by_a_hotkey_only(folder: Path, tmp_path: Path) -> None:
    """A key that was named on the command line beside a hotkey's address is not that hotkey's by being named."""
    source = open_folder(folder)
    key = public_key(two_crowns().secret).hex()
    assert source.anchor().vouched
    assert source.anchor(key=key, hotkey=VALIDATOR).vouched
    assert not source.anchor(key=key).vouched
    unbound = open_folder(write(two_crowns(validator=VALIDATOR), tmp_path / "unbound"))
    assert not unbound.anchor(key=key, hotkey=VALIDATOR).vouched


def recomputed(world: ReceiptsWorld, folder: Path, policy: str | None = None) -> str:
    """What `weights recompute` prints about a world."""
    bind(world)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        weights_recompute.run(str(write(world, folder)), VALIDATOR, None, policy, None, as_json=False)
    return out.getvalue()


def test_what_a_validator_says_about_hotkeys_and_targets_is_told(tmp_path: Path) -> None:
    """An absent claimant by name and who got the share, a target that is said to be gone, a policy that changed."""
    world = two_crowns(validator=VALIDATOR)
    world.put(weights_statement(world.vector(5, 500, ("5Nobody",))))
    said = recomputed(world, tmp_path / "absent")
    assert f"that 5Bob had left the subnet at block 500: the share went to {VALIDATOR}, the validator" in said


def test_the_policy_that_is_expected_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another half-life is consistent with itself, and not what was agreed on; a change of it is always told."""
    world = two_crowns(validator=VALIDATOR)
    agreed = world.vector(3, 300).policy.digest
    assert "vector reproduced" in recomputed(world, tmp_path / "agreed", agreed)
    other = msgspec.structs.replace(POLICY, half_life_blocks=10, burn_hotkey=VALIDATOR)
    monkeypatch.setattr(receipts_world, "POLICY", other)
    world.publish(4, 400)
    said = recomputed(world, tmp_path / "changed")
    assert "in epoch 4: half_life_blocks from 1000 to 10" in said
    assert f"in epoch 4: burn_hotkey from 5Burn to {VALIDATOR}" in said
    assert "what burns is burned: it goes to the validator's own hotkey" in said
    with pytest.raises(CacheonError) as found:
        recomputed(world, tmp_path / "foreign", agreed)
    assert found.value.code == "WEIGHTS_POLICY_FOREIGN"
    with pytest.raises(CacheonError) as found:
        recomputed(world, tmp_path / "word", "renormalise")
    assert found.value.code == "POLICY_NOT_HEX"


def test_only_what_is_proven_is_explained(folder: Path) -> None:
    """`weights explain` walks to the signed verdicts first; a crown without them is not told as one."""
    source = open_folder(folder)
    published = source.published(source.anchor())
    (crown,) = published.weights[walked(folder).receipt].crown_receipts
    (folder / "receipts" / f"{crown}.json").unlink()
    with pytest.raises(CacheonError) as found:
        weights_explain.run(None, str(folder), None, None, as_json=False)
    assert found.value.code == "RECEIPT_MISSING"


def test_control_characters_of_others_are_shown_and_not_obeyed() -> None:
    """No document clears the screen, hides a line or writes one of its own."""
    assert visible("5Bob\x1b[2J\nproves  all\x9b1A\u202e") == "5Bob\\x1b[2J\\nproves  all\\x9b1A\\u202e"
    assert visible("two\nlines\x1b", lines=True) == "two\nlines\\x1b"
    assert visible("für 1,5 µs") == "für 1,5 µs"
