"""The receipt key and the files of receipts."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.canonical import sha256_hex
from config.errors import HostError
from node.services.receipts import ReceiptBook
from node.store.crown_rows import all_crowns
from node.store.layout import StateLayout
from scoring.dsse import STATEMENT_TYPE, Statement, Subject, verify
from scoring.receipts import CrownPredicate, read_predicate
from tests.node.judging import World
from tests.node.support import submission

STATEMENT = Statement(STATEMENT_TYPE, (Subject("bundle", {"sha256": "0" * 64}),), "urn:test", {"number": 1})


@pytest.fixture
def layout(tmp_path: Path) -> StateLayout:
    """A state folder."""
    made = StateLayout.at(tmp_path / "state")
    made.create()
    return made


def test_key_is_private_and_kept(layout: StateLayout) -> None:
    """The key is made once, readable by its owner only, and used again by the next start."""
    first = ReceiptBook.open(layout)
    assert layout.receipt_key.stat().st_mode & 0o777 == 0o600
    assert layout.keys.stat().st_mode & 0o777 == 0o700
    assert ReceiptBook.open(layout).public_key == first.public_key
    assert (layout.keys / "receipt.pub").read_text().strip() == first.public_key.hex()


def test_receipts_verify_and_are_stored_once(layout: StateLayout) -> None:
    """A receipt lies under the digest of its bytes, verifies under the key, and signing again changes nothing."""
    book = ReceiptBook.open(layout)
    receipt = book.seal(STATEMENT)
    assert book.seal(STATEMENT) == receipt
    assert not list(layout.receipts.iterdir())
    book.write([receipt])
    book.write([receipt])
    data = book.path(receipt.digest).read_bytes()
    assert sha256_hex(data) == receipt.digest
    assert verify(data, [book.public_key]) == STATEMENT
    assert len(list(layout.receipts.iterdir())) == 1


def test_public_half_of_a_lost_key_is_kept(layout: StateLayout) -> None:
    """A node whose key was deleted makes a new one, and older receipts still find what they verify under."""
    former = ReceiptBook.open(layout).public_key.hex()
    layout.receipt_key.unlink()
    present = ReceiptBook.open(layout).public_key.hex()
    assert present != former
    assert (layout.keys / "receipt.pub").read_text().strip() == present
    assert (layout.keys / f"receipt.{former[:16]}.pub").read_text().strip() == former


@pytest.mark.parametrize("fault", ["open", "short", "noise"])
def test_unusable_key_is_refused_not_replaced(layout: StateLayout, fault: str) -> None:
    """A key that others can read, or that is damaged, is an error; the file stays as it is."""
    ReceiptBook.open(layout)
    if fault == "open":
        layout.receipt_key.chmod(0o640)
    else:
        layout.receipt_key.write_text("ab" if fault == "short" else "no key")
    before = layout.receipt_key.read_bytes()
    with pytest.raises(HostError) as caught:
        ReceiptBook.open(layout)
    assert caught.value.code == "RECEIPT_KEY_UNUSABLE"
    assert layout.receipt_key.read_bytes() == before


async def test_a_nodes_crown_says_what_was_waived(judging: World) -> None:
    """The receipt of a crown names the sandbox layers that its attempts went without: none here, and said so."""
    await judging.queue(submission(1))
    await judging.work()
    (crown,) = await judging.store.read(all_crowns)
    envelope = judging.receipts.path(crown.receipt_digest).read_bytes()
    statement = verify(envelope, [judging.receipts.public_key])
    assert read_predicate(statement, CrownPredicate).waived == ()
