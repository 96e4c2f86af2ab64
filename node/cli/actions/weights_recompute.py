"""`cacheon weights recompute`: a weight vector, reproduced from published receipts alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from node.cli.output import Output, facts, table
from node.receipt_folder import Anchor, open_folder
from scoring.walk import CrownStep, Walk, walk

if TYPE_CHECKING:
    from rich.console import Console


class Recomputed(msgspec.Struct, frozen=True):
    """The result as `--json` shows it: the vector that the receipts give, and what was and was not checked."""

    folder: str
    hotkey: str
    receipt_keys: tuple[str, ...]
    netuid: int
    epoch: int
    block: int
    receipt: str
    vector_digest: str
    policy_digest: str
    ledger_head: str
    entries: tuple[tuple[str, int], ...]
    crowns: tuple[CrownStep, ...]
    proves: tuple[str, ...]
    does_not_prove: tuple[str, ...]


def run(folder: str, hotkey: str | None, key: str | None, epoch: int | None, *, as_json: bool) -> None:
    """Reproduce one vector. Raises `GradeError` for the first link that does not hold, `NotFoundError`."""
    source = open_folder(folder)
    anchor = source.anchor(key=key, hotkey=hotkey)
    found = walk(source.published(anchor), source, epoch)
    result = _result(folder, anchor, found)
    Output("weights recompute", as_json=as_json).result(result, lambda console: _show(console, result, anchor))


def _result(folder: str, anchor: Anchor, found: Walk) -> Recomputed:
    predicate = found.predicate
    return Recomputed(
        folder=folder, hotkey=predicate.policy.validator_hotkey, receipt_keys=tuple(key.hex() for key in anchor.keys),
        netuid=predicate.netuid, epoch=predicate.epoch, block=predicate.vector.block, receipt=found.receipt,
        vector_digest=found.projection.vector.digest, policy_digest=predicate.policy.digest,
        ledger_head=predicate.ledger_head, entries=found.projection.vector.entries, crowns=found.crowns,
        proves=_proven(anchor, found), does_not_prove=_unproven(anchor, found),
    )


def _proven(anchor: Anchor, found: Walk) -> tuple[str, ...]:
    crowns, regraded = len(found.crowns), sum(one.regraded for step in found.crowns for one in step.verdicts)
    said = [
        f"every receipt in the folder is signed by the validator's key ({anchor.how})",
        "the shares follow, bit for bit, from the crowns that the ledger leads to, the receipt's policy and its block",
    ]
    if crowns:
        said.append(f"each of the {crowns} crowns follows from two signed verdicts, a PASS and its reproduction")
    if regraded:
        said.append(f"{regraded} of {2 * crowns} attempt files graded again give the verdicts that were signed")
    return tuple(said)


def _unproven(anchor: Anchor, found: Walk) -> tuple[str, ...]:
    absent = [one.attempt for step in found.crowns for one in step.verdicts if not one.regraded]
    unknown = [step for step in found.crowns if not step.target_known]
    said = []
    if not anchor.hotkey:
        said.append("that the key is the validator's: no hotkey vouches for it here")
    if absent:
        said.append(
            f"that {len(absent)} verdicts are right: their attempt files are not here ({', '.join(absent)})"
        )
    if unknown:
        said.append(f"what {len(unknown)} crowns are for: the documents of their targets are not here")
    reviewed = sum(one.reviewed for step in found.crowns for one in step.verdicts)
    if reviewed:
        said.append(f"that {reviewed} verdicts are honest: they are PASS only because the validator's operator said so")
    waived = sorted({layer for step in found.crowns for layer in step.layers_waived})
    if waived:
        said.append(f"that its bundles were isolated as they should be: layers {', '.join(waived)} were waived")
    said += [
        "that the validator set these weights: compare with its row on the chain",
        "who was in the metagraph at that block: an archive node knows",
        "that the attempts were measured honestly: what a grader cannot see is in docs/threat-model.md",
    ]
    return tuple(said)


def _show(console: Console, result: Recomputed, anchor: Anchor) -> None:
    console.print("vector reproduced", style="green")
    rows = [
        ("validator", f"{result.hotkey} on subnet {result.netuid}"),
        ("epoch", f"{result.epoch}, at block {result.block}"),
        ("vector", result.vector_digest),
        ("receipt", result.receipt),
        ("signed by", ", ".join(result.receipt_keys) + f": {anchor.how}"),
    ]
    rows += [("proves", one) for one in result.proves]
    rows += [("does not prove", one) for one in result.does_not_prove]
    facts(console, rows)
    console.print(table(("hotkey", "ppm"), [(hotkey, str(ppm)) for hotkey, ppm in result.entries], whole=("hotkey",)))
    if result.crowns:
        cells = [
            (one.claim.target_id, one.claim.hotkey, f"{one.claim.speedup_ppm / 1e6:.6f}", str(one.claim.crowned_block),
             "graded again" if all(verdict.regraded for verdict in one.verdicts) else "signed only")
            for one in result.crowns
        ]
        console.print(table(("target", "hotkey", "speed-up", "block", "verdicts"), cells, whole=("hotkey",)))
