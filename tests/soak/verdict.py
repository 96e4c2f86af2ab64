"""Comparing what the node recorded with what the chain says happened."""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import Connection, select

from chain.publication_record import PublicationRecord
from node.store.engine import Store
from node.store.events import verify_chain
from node.store.journal import read_records
from node.store.layout import StateLayout
from node.store.schema import events, submissions
from tests.chain.devnet.support import public
from tests.soak.node_process import VALIDATOR
from tests.soak.truth import TrueReveal, TrueWeights, epochs_of, true_reveals, true_weights

if TYPE_CHECKING:
    from tests.soak.driver import Soak


class SoakReport(msgspec.Struct, kw_only=True):
    """The result. A soak has passed when `problems` is empty."""

    blocks: int
    reveals: int
    lost: int
    duplicated: int
    reordered: int
    codes: dict[str, int]  # rows by reason; "" are usable
    epochs: int
    confirmed: int
    excused: dict[str, int]  # epochs without a confirmed publication, by recorded reason
    weight_extrinsics: int
    faults: dict[str, int]
    events: dict[str, int]
    problems: list[str]


class Recorded(msgspec.Struct):
    """What the node's store holds: reveals in the order in which they were recorded, codes, publications."""

    reveals: list[TrueReveal]
    codes: dict[str, int]
    publications: tuple[PublicationRecord, ...]


async def judge(soak: Soak) -> SoakReport:
    """Read the node's store and the chain, and compare them."""
    chain = soak.chain.chain
    last = chain.finalized.number
    store = await Store.open(StateLayout.at(soak.folder / "node"))
    try:
        recorded = await store.read(read_recorded)
        await store.read(verify_chain)
    finally:
        await store.close()
    problems = [f"a node ended by itself with exit code {code}" for code in soak.node.exits]
    true = true_reveals(chain, last)
    weights = true_weights(chain, public(VALIDATOR), last)
    epochs = epochs_of(chain, last)
    lost, duplicated = differences(true, recorded.reveals)
    reordered = 0 if recorded.reveals == sorted(recorded.reveals) else inversions(recorded.reveals)
    problems += [f"lost: {one}" for one in lost[:20]]
    problems += [f"not on the chain, or twice: {one}" for one in duplicated[:20]]
    if reordered:
        problems.append(f"{reordered} reveals were recorded after later ones")
    if len(true) < soak.plan.reveals:
        problems.append(f"the chain revealed {len(true)} of {soak.plan.reveals} wanted")
    judged = range(1, epochs[soak.plan.blocks])  # the first epoch may begin too late, the last may be open
    excuses = _excuses(soak, epochs)
    confirmed, excused, more = _publications(recorded.publications, weights, judged, excuses)
    return SoakReport(
        blocks=last, reveals=len(true), lost=len(lost), duplicated=len(duplicated), reordered=reordered,
        codes=recorded.codes, epochs=len(judged), confirmed=confirmed, excused=excused,
        weight_extrinsics=len(weights), faults=soak.struck, events=dict(soak.did), problems=problems + more,
    )


def read_recorded(connection: Connection) -> Recorded:
    """Return what a store holds."""
    rows = {row.submission_id: row for row in connection.execute(select(submissions))}
    order = select(events.c.subject).where(events.c.kind == "submission.recorded").order_by(events.c.sequence)
    told = list(connection.execute(order).scalars())
    reveals = [
        TrueReveal(row.block, row.event_index, row.sub_index, row.hotkey, row.payload_digest, row.registered_block)
        for row in (rows[subject] for subject in told)
    ]
    if len(told) != len(rows):
        raise AssertionError(json.dumps({"rows": len(rows), "told": len(told)}))
    return Recorded(reveals, dict(Counter(row.reason for row in rows.values())), read_records(connection))


def differences(true: list[TrueReveal], found: list[TrueReveal]) -> tuple[list[TrueReveal], list[TrueReveal]]:
    """Return what of `true` was not found, and what was found that is not true or once too often."""
    wanted, had = Counter(true), Counter(found)
    return sorted((wanted - had).elements()), sorted((had - wanted).elements())


def inversions(found: list[TrueReveal]) -> int:
    """Return how many reveals stand directly behind a later one."""
    return sum(left > right for left, right in itertools.pairwise(found))


def _publications(
    records: tuple[PublicationRecord, ...], weights: list[TrueWeights], judged: range, excuses: dict[int, str]
) -> tuple[int, dict[str, int], list[str]]:
    """Return how many epochs have their one confirmed publication, the reasons of the others, and what is wrong."""
    problems: list[str] = []
    latest = {record.publication_id: record for record in records}
    by_epoch: dict[int, list[PublicationRecord]] = defaultdict(list)
    for record in latest.values():
        by_epoch[record.epoch].append(record)
    confirmed, excused = 0, Counter[str]()
    for epoch in judged:
        mine = by_epoch[epoch]
        count = sum(record.status == "confirmed" for record in mine)
        if count == 1:
            confirmed += 1
            continue
        reason = next((f"{record.status}: {record.reason}" for record in mine if record.reason), excuses.get(epoch, ""))
        if count > 1 or not reason:
            problems.append(f"epoch {epoch} has {count} confirmed publications and no reason")
        excused[reason.split(":")[0]] += 1
    known = {record.extrinsic_hash for record in latest.values()}
    strange = [one.extrinsic_hash for one in weights if one.extrinsic_hash not in known]
    problems += [f"extrinsic {one} is in no journal" for one in strange]
    for epoch, count in Counter(one.epoch for one in weights if one.success).items():
        if count > 1:
            problems.append(f"epoch {epoch} has {count} weights extrinsics")
    return confirmed, dict(excused), problems


def _excuses(soak: Soak, epochs: list[int]) -> dict[int, str]:
    """Return epoch -> why nothing was published, as the node itself said, or because it was not there to see it."""
    blocks, seen = Counter(epochs), Counter(epochs[block] for block in soak.node.steps if block < len(epochs))
    found = {epoch: "node behind" for epoch, count in blocks.items() if seen[epoch] < count / 2}
    for height in soak.down:
        found[epochs[height]] = "node down"
    for block, code in soak.node.waits:
        if block < len(epochs):
            found[epochs[block]] = f"waiting {code}"
    return found


def table(report: SoakReport) -> str:
    """Return the report for people."""
    lines = [
        f"blocks              {report.blocks}",
        f"reveals             {report.reveals}",
        f"  lost              {report.lost}",
        f"  duplicated        {report.duplicated}",
        f"  reordered         {report.reordered}",
        f"  unusable          {sum(count for code, count in report.codes.items() if code)}",
        f"epochs              {report.epochs}",
        f"  one confirmed     {report.confirmed}",
    ]
    lines += [f"  excused           {count}  {reason}" for reason, count in sorted(report.excused.items())]
    lines.append(f"weights extrinsics  {report.weight_extrinsics}")
    lines += [f"{name:<20}{count}" for name, count in sorted((report.events | _prefixed(report.faults)).items())]
    lines += [f"PROBLEM {problem}" for problem in report.problems]
    return "\n".join([*lines, "soak passed" if not report.problems else "soak FAILED"])


def _prefixed(faults: dict[str, int]) -> dict[str, int]:
    return {f"fault {kind}": count for kind, count in faults.items()}
