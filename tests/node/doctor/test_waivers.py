"""A waiver leaves its mark where others can see it: in the receipt of every verdict reached under it."""

from __future__ import annotations

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
