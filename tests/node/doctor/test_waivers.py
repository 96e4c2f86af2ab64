"""A waiver leaves its mark where others can see it: in the receipt of every verdict reached under it."""

from __future__ import annotations

from pathlib import Path

from node.services.receipts import ReceiptBook
from node.store.layout import StateLayout
from qualify.environment import describe
from scoring import dsse
from scoring.attempt import attempt_digest, encode_attempt
from scoring.grade import grade
from scoring.receipts import VerdictPredicate, read_predicate, verdict_statement
from tests.scoring.support import FakeReferee, change, make_arena

SECRET = bytes(range(32))


def test_a_receipt_names_the_waived_layers() -> None:
    """What the environment record of an attempt calls waived stands in the signed statement of its verdict."""
    arena = make_arena()
    record = describe(0, "0.00 0.00 0.00", ("userns",), ("seccomp", "landlock"), arena.timing_method)
    attempt = change(FakeReferee(arena).measure(), "environment.layers_waived", record.layers_waived)
    statement = verdict_statement(attempt, attempt_digest(encode_attempt(attempt)), grade(attempt, arena))
    read = dsse.verify(dsse.sign(statement, SECRET), [dsse.public_key(SECRET)])
    assert read_predicate(read, VerdictPredicate).environment.layers_waived == ("landlock", "seccomp")


def test_a_crowns_receipt_names_what_was_waived_in_either_attempt(tmp_path: Path) -> None:
    """The layers of both verdicts' attempts together; unknown when a receipt is gone or another key signed it."""
    arena = make_arena()
    layout = StateLayout.at(tmp_path)
    layout.create()
    book = ReceiptBook.open(layout)
    signed = []
    for layers in (("seccomp",), ("landlock", "seccomp"), ()):
        attempt = change(FakeReferee(arena).measure(), "environment.layers_waived", layers)
        digest = attempt_digest(encode_attempt(attempt))
        receipt = book.seal(verdict_statement(attempt, digest, grade(attempt, arena)))
        book.write([receipt])
        signed.append(receipt.digest)
    assert book.waived((signed[0], signed[1])) == ("landlock", "seccomp")
    assert book.waived((signed[2], signed[2])) == ()
    assert book.waived((signed[0], "0" * 64)) is None
    assert ReceiptBook(layout, bytes(32)).waived((signed[0], signed[1])) is None
