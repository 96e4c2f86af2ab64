"""The tables of the node's store, as SQLAlchemy Core objects.

Invariants
1. `events`, `publications` and `ledger_commitments` are append-only; everything else holds the present state.
2. Every row that belongs to a submission names it by its id (a digest), never by hotkey or position.
3. Times are Unix milliseconds in columns named `*_ms`; ratios are ppm; documents are canonical JSON text.
4. A change here needs a migration in `migrations/versions/`; a test compares the two.
"""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Index, Integer, MetaData, Table, Text, UniqueConstraint

metadata = MetaData(naming_convention={
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
})


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False, server_default="")


def _number(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default="0")


def _submission(*, primary_key: bool = False) -> Column[str]:
    return Column(
        "submission_id", Text, ForeignKey("submissions.submission_id"), nullable=False, primary_key=primary_key
    )


# The chain this store belongs to, and how far it was read. One row, id 1.
chain_binding = Table(
    "chain_binding", metadata,
    Column("id", Integer, primary_key=True),
    _text("genesis_hash"), _number("netuid"), _number("cursor_block"), _text("cursor_hash"),
)

# One row per finalized reveal, good or not.
submissions = Table(
    "submissions", metadata,
    Column("submission_id", Text, primary_key=True),
    _number("block"), _text("block_hash"), _number("event_index"), _number("sub_index"),
    _text("hotkey"), Column("registered_block", Integer), _text("payload_hex"), _text("payload_digest"),
    _text("content_hash"), _text("url"), Column("payment_block", Integer), Column("payment_index", Integer),
    _text("reason"), _number("recorded_ms"),
    UniqueConstraint("block", "event_index", "sub_index", "hotkey", "payload_digest"),
    Index(None, "content_hash"),
)

# One row per submission; the columns are those of `node.jobs.Job`.
jobs = Table(
    "jobs", metadata,
    _submission(primary_key=True),
    _text("state"), _number("token"), _number("faults"), _number("transport_failures"), _number("not_before_ms"),
    _text("parked_from"), _text("parked_on"), _text("target_id"), _text("fingerprint"),
    _text("primary_attempt"), _text("reproduction_attempt"),
    _text("code"), _text("blame"), _text("detail"), _text("seen_hash"), _text("earlier_id"), _number("updated_ms"),
    _text("kinship"), _text("admission"), _number("rests"),
    Index(None, "state"), Index(None, "fingerprint"),
)

# Payments of the evaluation cost that were used up, each by the one submission it admitted.
payments = Table(
    "payments", metadata,
    Column("payment_block", Integer, primary_key=True),
    Column("payment_index", Integer, primary_key=True),
    _submission(),
    _text("payer"), _text("destination"), _number("amount_rao"), _number("used_ms"),
    UniqueConstraint("submission_id"),
)

# Credits: each admits one submission of its hotkey. `earned_by` is the submission that a credit makes good for
# (null when an operator granted it), `spent_by` the one it admitted (null while it is there to be spent).
cost_credits = Table(
    "credits", metadata,
    Column("id", Integer, primary_key=True),
    _text("hotkey"), _text("origin"), _text("note"), _number("granted_ms"),
    Column("earned_by", Text, ForeignKey("submissions.submission_id"), unique=True),
    Column("spent_by", Text, ForeignKey("submissions.submission_id"), unique=True),
    _number("spent_ms"),
    Index(None, "hotkey"),
)

# Every fetch of an archive that ended: what came, or why nothing did.
fetches = Table(
    "fetches", metadata,
    Column("id", Integer, primary_key=True),
    _submission(),
    _text("code"), _text("detail"), _text("seen_hash"), _text("archive_digest"), _number("ended_ms"),
    Index(None, "submission_id"),
)

# Published bundles, by content hash.
bundles = Table(
    "bundles", metadata,
    Column("content_hash", Text, primary_key=True),
    _text("bundle_id"), _text("target_id"), _text("fingerprint"), _number("published_ms"), _text("pieces"),
    _number("print_version"),
)

# What the fingerprints of published bundles were made of: functions, kernels, patched files.
bundle_parts = Table(
    "bundle_parts", metadata,
    Column("content_hash", Text, ForeignKey("bundles.content_hash"), primary_key=True),
    Column("digest", Text, primary_key=True),
    _text("shape"), _text("name"), _number("weight"),
    Index(None, "shape"),
)

# One row per attempt that was started.
attempts = Table(
    "attempts", metadata,
    Column("attempt_id", Text, primary_key=True),
    _submission(),
    _text("role"), _text("state"), _text("content_hash"), _text("target_id"),
    _text("arena_digest"), _text("incumbent"), _text("measured_against"), _text("previous_digest"),
    _text("commitment"),
    _text("path"), _text("digest"), _text("outcome"), _text("code"), _text("blame"), _text("reason"),
    _number("lower_ppm"), _number("upper_ppm"), _number("launches"),
    _text("tree_digest"), _text("replay_of"), _text("receipt_digest"),
    _number("started_ms"), _number("ended_ms"), _text("worker"),
    Index(None, "submission_id"), Index(None, "content_hash"), Index(None, "state", "outcome", "code"),
)

# Settlement events as `scoring.settle` made them; replaying the bodies gives the state of all crowns.
settlement_events = Table(
    "settlement_events", metadata,
    Column("sequence", Integer, primary_key=True),
    _text("type"), _text("submission_id"), _text("digest"), _text("body"),
    UniqueConstraint("digest"),
)

# Crowns: who held a target, from which reveal on. `ended_by` is empty while the crown is live.
crowns = Table(
    "crowns", metadata,
    _submission(primary_key=True),
    _text("target_id"), _text("content_hash"), _text("hotkey"), _number("block"), _number("speedup_ppm"),
    _text("event_digest"), _text("receipt_digest"), _text("ended_by"), _number("crowned_ms"),
    Index(None, "target_id"),
)

# Checks of crowns: whether a crowned bundle still does what it was crowned for. `crown` is the digest of its CROWN
# event, `cause` the submission whose attempt `cause_attempt` raised the question.
crown_checks = Table(
    "crown_checks", metadata,
    Column("id", Integer, primary_key=True),
    _submission(),
    _text("crown"), _text("target_id"), _text("occasion"), _text("cause"), _text("cause_attempt"), _text("state"),
    _text("first_attempt"), _text("second_attempt"), _text("code"), _text("detail"),
    _number("tries"), _number("faults"), _number("not_before_ms"), _number("opened_ms"), _number("closed_ms"),
    _number("uncompared"),
    UniqueConstraint("crown", "cause_attempt"), Index(None, "state"),
)

# What persons decided about submissions, and the receipt that says so.
decisions = Table(
    "decisions", metadata,
    Column("id", Integer, primary_key=True),
    _submission(),
    _text("kind"), _text("content_hash"), _text("arena_digest"), _text("attempt_id"), _text("code"), _text("reason"),
    _text("receipt_digest"), _number("decided_ms"),
    Index(None, "submission_id"),
)

# Signed receipts; the file lies in `receipts/` (a ledger's in `ledger/`) under its digest.
receipts = Table(
    "receipts", metadata,
    Column("digest", Text, primary_key=True),
    _text("kind"), _text("subject"), _number("signed_ms"),
)

# The envelopes of those receipts whose files may not be on disk yet: nearly always none.
receipt_outbox = Table(
    "receipt_outbox", metadata,
    Column("digest", Text, ForeignKey("receipts.digest"), primary_key=True),
    _text("envelope"),
)

# The vector behind each publication: who gets how many ppm, and the receipt that says from what.
vectors = Table(
    "vectors", metadata,
    Column("publication_id", Text, primary_key=True),
    _text("digest"), _number("block"), _text("body"), _text("receipt_digest"), _number("made_ms"),
)

# The publication journal: every state of every intent, append-only.
publications = Table(
    "publications", metadata,
    Column("sequence", Integer, primary_key=True),
    _text("digest"), _text("prior_digest"), _text("publication_id"), _text("status"), _number("epoch"),
    _text("vector_digest"), _text("body"), _number("recorded_ms"),
    UniqueConstraint("digest"), UniqueConstraint("prior_digest"), Index(None, "publication_id"), Index(None, "status"),
)

# The journal of ledger commitments: every state of every commitment of our own, append-only.
ledger_commitments = Table(
    "ledger_commitments", metadata,
    Column("sequence", Integer, primary_key=True),
    _text("digest"), _text("prior_digest"), _text("commitment_id"), _text("status"), _number("epoch"),
    _text("ledger_digest"), _text("body"), _number("recorded_ms"),
    UniqueConstraint("digest"), UniqueConstraint("prior_digest"),
)

# What happened, in order; each row names the digest of the one before.
events = Table(
    "events", metadata,
    Column("sequence", Integer, primary_key=True),
    Column("at_ms", Integer, nullable=False),
    _text("kind"), _text("subject"), _text("body"), _text("previous"),
    Column("digest", Text, nullable=False, unique=True),
    Index(None, "subject"), Index(None, "kind"),
)
