"""`cacheon weights explain`: why each hotkey gets its share, in numbers that add up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from node.cli.output import Output, facts, table, visible
from node.cli.resolve import resolve_state
from node.receipt_folder import open_folder
from scoring.claims import EQUAL_PPM, Claim
from scoring.derivation import CrownShare, Derivation, FormerCrown, Row, derive, former_crowns
from scoring.projection import WeightPolicy
from scoring.walk import NoEvidence, walk

if TYPE_CHECKING:
    from rich.console import Console


class Explained(msgspec.Struct, frozen=True):
    """The result as `--json` shows it. With --hotkey, `rows` has that hotkey's row at most, and `claims` and
    `former_crowns` say what it holds and held."""

    folder: str
    validator: str
    netuid: int
    epoch: int
    receipt: str
    hotkey: str
    derivation: Derivation
    claims: tuple[Claim, ...]
    former_crowns: tuple[FormerCrown, ...]


def run(config: str | None, state: str | None, hotkey: str | None, epoch: int | None, *, as_json: bool) -> None:
    """Explain a vector. Raises `GradeError` for a link from it to signed verdicts that does not hold, `NotFoundError`
    (RECEIPT_NOT_FOUND)."""
    folder = str(Path(resolve_state(config, state).state_dir).expanduser())
    source = open_folder(folder)
    published = source.published(source.anchor())
    found = walk(published, NoEvidence(), epoch)  # only what follows from crowns that are proven is explained
    digest, predicate = found.receipt, found.predicate
    derivation = derive(found.projection, predicate.claims, predicate.policy)
    claims: tuple[Claim, ...] = ()
    former: tuple[FormerCrown, ...] = ()
    if hotkey is not None:
        rows = tuple(row for row in derivation.rows if row.hotkey == hotkey)
        derivation = msgspec.structs.replace(derivation, rows=rows)
        claims = tuple(one for one in predicate.claims if one.hotkey == hotkey)
        events = published.ledger.events if published.ledger is not None else ()
        former = former_crowns(events[: published.sequence_of[predicate.ledger_head]], hotkey)
    result = Explained(
        folder, predicate.policy.validator_hotkey, predicate.netuid, predicate.epoch, digest, hotkey or "", derivation,
        claims, former,
    )
    Output("weights explain", as_json=as_json).result(result, lambda console: _show(console, result))


def _show(console: Console, result: Explained) -> None:
    derivation = result.derivation
    policy = derivation.policy
    facts(console, [
        ("validator", f"{result.validator} on subnet {result.netuid}"),
        ("vector", f"of epoch {result.epoch}, decided at block {derivation.block} (receipt {result.receipt[:12]})"),
        ("credit", f"speed-up above equal, in ppm; half of it is left after {policy.half_life_blocks} blocks"),
        ("decayed", _decayed(derivation)),
        ("absent", f"the share of a claimant who left the subnet goes to {policy.heir}"),
        ("all credit", f"{derivation.total_credit}"),
    ])  # fmt: skip
    if not result.hotkey:
        cells = [(row.hotkey, str(row.ppm), f"{row.ppm / 10_000:.4f} %", _summary(row)) for row in derivation.rows]
        console.print(table(("hotkey", "ppm", "share", "because"), cells, whole=("hotkey",)))
    for row in derivation.rows:
        _show_row(console, row, policy)
    if result.hotkey:
        _show_hotkey(console, result)
    for fault in derivation.set_aside:
        console.print(visible(f"set aside: {fault.message} [{fault.code}]"), markup=False, soft_wrap=True)


def _decayed(derivation: Derivation) -> str:
    if derivation.policy.undistributed == "burn":
        return f"credit lost to decay burns: {derivation.burned_credit} in all, to {derivation.policy.burn_hotkey}"
    return "credit lost to decay is shared out again among all who are paid (`renormalise`)"


def _summary(row: Row) -> str:
    parts = [f"{one.target_id}{'' if one.is_present else ' (of an absent hotkey)'}" for one in row.crowns]
    if row.burned_credit:
        parts.append("burns what decayed")
    if row.burns_everything:
        parts.append("burns everything: nothing is crowned, or no credit is left")
    return ", ".join(parts)


def _show_row(console: Console, row: Row, policy: WeightPolicy) -> None:
    console.print(f"\n{visible(row.hotkey)}: {row.ppm} ppm", markup=False, soft_wrap=True)
    for one in row.crowns:
        console.print(f"  {visible(_crown(one, policy))}", markup=False, soft_wrap=True)
    if row.burned_credit:
        console.print(
            f"  burns {row.burned_credit}: all credit that was lost to decay", markup=False, soft_wrap=True
        )
    if row.burns_everything:
        console.print("  takes everything, because there is no credit to share", markup=False, soft_wrap=True)
        return
    extra = f", and 1 ppm for one of the largest remainders ({row.remainder})" if row.rounded_up else ""
    console.print(
        f"  share: {row.credit} of {row.total_credit}: {row.credit} * {EQUAL_PPM} // {row.total_credit} = "
        f"{row.quotient_ppm} ppm{extra}",
        markup=False, soft_wrap=True,
    )


def _crown(one: CrownShare, policy: WeightPolicy) -> str:
    absent = "" if one.is_present else f", in place of {one.claimant}, who is not in the subnet"
    return (
        f"crown of {one.target_id} (revealed in block {one.crowned_block}, {one.age_blocks} blocks ago){absent}: "
        f"speed-up {one.speedup_ppm / EQUAL_PPM:.6f}, credit {one.full_credit}, of which "
        f"{one.full_credit} * {policy.half_life_blocks} // ({policy.half_life_blocks} + {one.age_blocks}) = "
        f"{one.standing_credit} is left and {one.lost_credit} decayed"
    )


def _show_hotkey(console: Console, result: Explained) -> None:
    said = []
    if not result.derivation.rows:
        said.append(f"{result.hotkey} gets nothing in this vector")
        if not result.claims:
            said.append("it holds no crown")
    paid = {row.hotkey for row in result.derivation.rows for one in row.crowns if one.is_present}
    said += [
        f"its crown of {one.target_id} is not paid to it: it is not in the subnet, or the claim was set aside"
        for one in result.claims if result.hotkey not in paid
    ]
    said += [
        f"its crown of {one.target_id} (block {one.crowned_block}, speed-up {one.speedup_ppm / EQUAL_PPM:.6f}) ended: "
        f"{one.ended} by the submission of {one.by_hotkey} in block {one.by_block}"
        for one in result.former_crowns
    ]
    for line in said:
        console.print(visible(line), markup=False, soft_wrap=True)
