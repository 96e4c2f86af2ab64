"""`cacheon weights recompute`: a weight vector, reproduced from published receipts alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from config.canonical import is_digest
from config.errors import ConfigurationError, GradeError
from config.target_catalog import load_catalog
from node.cli.output import Output, facts, table
from node.receipt_folder import Anchor, open_folder
from scoring.claims import ClaimFault
from scoring.projection import WeightPolicy
from scoring.published import PolicyChange, Published, policy_changes
from scoring.walk import CrownStep, RevocationStep, VerdictStep, Walk, walk

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN = 5  # changes of the policy that are printed; --json has all


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
    policy: WeightPolicy
    policy_changes: tuple[PolicyChange, ...]
    ledger_head: str
    entries: tuple[tuple[str, int], ...]
    crowns: tuple[CrownStep, ...]
    revocations: tuple[RevocationStep, ...]
    former_crowns: int
    set_aside: tuple[ClaimFault, ...]
    proves: tuple[str, ...]
    does_not_prove: tuple[str, ...]


def run(
    folder: str, hotkey: str | None, key: str | None, policy: str | None, epoch: int | None, *, as_json: bool
) -> None:
    """Reproduce one vector. Raises `GradeError` for the first link that does not hold, `NotFoundError` and
    `ConfigurationError` (POLICY_NOT_HEX, RECEIPT_KEY_NOT_HEX)."""
    if policy is not None and not is_digest(policy):
        raise ConfigurationError(
            "POLICY_NOT_HEX", "the policy's digest is not 64 lower-case hexadecimal characters",
            hint="without --policy the command prints the digest of the policy that was used",
        )
    source = open_folder(folder)
    anchor = source.anchor(key=key, hotkey=hotkey)
    published = source.published(anchor)
    found = walk(published, source, epoch)
    used = found.predicate.policy
    if policy is not None and used.digest != policy:
        raise GradeError(
            "WEIGHTS_POLICY_FOREIGN", f"the vector of epoch {found.predicate.epoch} was made under policy "
            f"{used.digest[:12]} ({_policy_text(used)}), and {policy[:12]} was asked for",
        )
    result = _result(folder, anchor, published, found)
    Output("weights recompute", as_json=as_json).result(result, lambda console: _show(console, result, anchor))


def _result(folder: str, anchor: Anchor, published: Published, found: Walk) -> Recomputed:
    predicate = found.predicate
    return Recomputed(
        folder=folder, hotkey=predicate.policy.validator_hotkey, receipt_keys=tuple(key.hex() for key in anchor.keys),
        netuid=predicate.netuid, epoch=predicate.epoch, block=predicate.vector.block, receipt=found.receipt,
        vector_digest=found.projection.vector.digest, policy_digest=predicate.policy.digest, policy=predicate.policy,
        policy_changes=policy_changes(published, predicate.epoch), ledger_head=predicate.ledger_head,
        entries=found.projection.vector.entries, crowns=found.crowns, revocations=found.revocations,
        former_crowns=found.former, set_aside=found.projection.faults, proves=tuple(_proven(anchor, found)),
        does_not_prove=tuple(_unproven(anchor, found)),
    )


def _proven(anchor: Anchor, found: Walk) -> Iterator[str]:
    steps = _verdicts(found)
    regraded = sum(one.regraded for one in steps)
    yield f"every receipt in the folder is signed by the key named above ({anchor.how})"
    yield "the shares follow, bit for bit, from the crowns that the ledger leads to, the receipt's policy and its block"
    if found.crowns:
        yield (
            f"{_all(len(found.crowns), 'crown')} follows from two signed verdicts, a PASS and its reproduction, and is "
            "paid for the smaller speed-up"
        )
    if found.former:
        yield f"{_all(found.former, 'crown')} that ended earlier rested on two such verdicts as well"
    if found.revocations:
        yield (
            f"{_all(len(found.revocations), 'revoked crown')} failed two checks of its own, as two signed verdicts say"
        )
    if regraded:
        yield f"{regraded} of {len(steps)} attempt files graded again give the verdicts that were signed"


def _verdicts(found: Walk) -> list[VerdictStep]:
    """Return the verdicts behind what stands and behind what was revoked."""
    return [
        *(verdict for crown in found.crowns for verdict in crown.verdicts),
        *(verdict for revocation in found.revocations for verdict in revocation.verdicts),
    ]


def _all(count: int, what: str) -> str:
    return f"the one {what}" if count == 1 else f"each of the {count} {what}s"


def _unproven(anchor: Anchor, found: Walk) -> Iterator[str]:
    predicate = found.predicate
    if not anchor.vouched:
        yield "that the key is the validator's: no hotkey vouches for it here"
    yield from _not_measured(found)
    yield from _said_of_the_subnet(found)
    if found.later_events:
        yield (
            f"that the vector is of the newest crowns: the ledger holds {found.later_events} later settlement "
            f"event{'s' * (found.later_events > 1)}"
        )
    waived = sorted({layer for step in found.crowns for layer in step.layers_waived}.union(predicate.waived or ()))
    if waived:
        yield f"that its bundles were isolated as they should be: layers {', '.join(waived)} were waived"
    yield "that the validator set these weights: compare with its row on the chain"
    yield "that the attempts were measured honestly: what a grader cannot see is in docs/threat-model.md"


def _not_measured(found: Walk) -> Iterator[str]:
    steps = _verdicts(found)
    absent = [one.attempt for one in steps if not one.regraded]
    if absent:
        yield f"that {len(absent)} verdicts are right: their attempt files are not here ({', '.join(absent)})"
    unknown = sum(not step.target_known for step in found.crowns)
    if unknown:
        yield f"what {unknown} crowns are for: the documents of their targets are not here"
    beneath = sum(not step.incumbent_known for step in found.crowns)
    if beneath:
        yield f"what {beneath} crowns were measured against: there are too many crowns to tell"
    reviewed = sum(one.reviewed for one in steps)
    if reviewed:
        yield f"that {reviewed} verdicts are honest: they are PASS only because the validator's operator said so"


def _said_of_the_subnet(found: Walk) -> Iterator[str]:
    """Tell what the receipt says of hotkeys and targets, and what that moved."""
    predicate, policy = found.predicate, found.predicate.policy
    gone = sorted({line.hotkey for line in found.projection.lines if line.recipient != line.hotkey})
    if gone:
        yield f"that {', '.join(gone)} had left the subnet at block {predicate.vector.block}: the share went to " + (
            f"{policy.heir}, the validator" if policy.heir == policy.validator_hotkey else policy.heir
        )
    elif found.crowns:
        yield f"that all who are paid were in the subnet at block {predicate.vector.block}: an archive node knows"
    catalog = load_catalog()
    for fault in found.projection.faults:
        target = next((one.target_id for one in predicate.claims if one.claim_id == fault.claim_id), "")
        known = fault.code == "CLAIM_TARGET_UNKNOWN" and catalog.find(target) is not None
        yield f"that this crown is rightly not paid: {fault.message} [{fault.code}]" + (
            f"; this release registers {target}" if known else ""
        )
    burns = found.projection.burned_credit or not found.crowns
    if burns and policy.burn_hotkey == policy.validator_hotkey:
        yield "that what burns is burned: it goes to the validator's own hotkey, right only for a subnet's owner"


def _policy_text(policy: WeightPolicy) -> str:
    decayed = f"burned to {policy.burn_hotkey}" if policy.undistributed == "burn" else "shared out again"
    return (
        f"half of a crown's credit is left after {policy.half_life_blocks} blocks; what decayed is {decayed}; the "
        f"share of who left the subnet goes to {policy.heir}"
    )


def _show(console: Console, result: Recomputed, anchor: Anchor) -> None:
    console.print("vector reproduced", style="green")
    rows = [
        ("validator", f"{result.hotkey} on subnet {result.netuid}"),
        ("epoch", f"{result.epoch}, at block {result.block}"),
        ("vector", result.vector_digest),
        ("receipt", result.receipt),
        ("signed by", ", ".join(result.receipt_keys) + f": {anchor.how}"),
        ("policy", result.policy_digest),
        ("", _policy_text(result.policy)),
    ]
    rows += [
        ("policy changed", f"in epoch {one.epoch}: {one.field} from {one.before} to {one.after}")
        for one in result.policy_changes[-_SHOWN:]
    ]
    rows += [
        ("revoked", f"the crown of {one.hotkey} on {one.target_id} [{one.reason}]") for one in result.revocations
    ]
    rows += [("proves", one) for one in result.proves]
    rows += [("does not prove", one) for one in result.does_not_prove]
    facts(console, rows)
    shares = [(hotkey, str(ppm), f"{ppm / 10_000:.4f} %") for hotkey, ppm in result.entries]
    console.print(table(("hotkey", "ppm", "share"), shares, whole=("hotkey",)))
    if result.crowns:
        cells = [
            (one.claim.target_id, one.claim.hotkey, f"{one.claim.speedup_ppm / 1e6:.6f}x",
             str(one.claim.crowned_block))
            for one in result.crowns
        ]
        console.print(table(("target", "hotkey", "speed-up", "block"), cells, whole=("hotkey",)))
