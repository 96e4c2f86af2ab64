"""`cacheon ledger verify`: a validator's crown ledger, from the chain to the last event."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from config.canonical import is_digest, sha256_hex
from config.errors import ConfigurationError, GradeError, NotFoundError
from config.limits import RECEIPT_BYTES
from node.cli.output import Output, facts, table
from node.cli.resolve import resolve
from scoring.dsse import verify
from scoring.ledger import LedgerPredicate, check_ledger, read_ledger_predicate

if TYPE_CHECKING:
    from rich.console import Console

    from chain.ledger_pointer import LedgerCommitment, LedgerPointer
    from config.settings import Settings
    from node.cli.options import ChainChoice


class LiveCrown(msgspec.Struct, frozen=True):
    """One live crown of the ledger; `receipt` is the digest of its signed receipt."""

    target_id: str
    hotkey: str
    content_hash: str
    speedup_ppm: int
    block: int
    receipt: str


class VerifiedLedger(msgspec.Struct, frozen=True):
    """The result as `--json` shows it. `committed_block` is 0 and `url` empty when the chain was not asked."""

    digest: str
    receipt_key: str
    hotkey: str
    netuid: int
    genesis_hash: str
    committed_block: int
    url: str
    head: str
    events: int
    crowns: tuple[LiveCrown, ...]
    proves: tuple[str, ...]
    does_not_prove: tuple[str, ...]


class _OnChain(msgspec.Struct, frozen=True):
    block: int
    pointer: LedgerPointer
    genesis_hash: str
    netuid: int
    hotkey: str


def run(file: str | None, hotkey: str | None, key: str | None, choice: ChainChoice, *, as_json: bool) -> None:
    """Verify one ledger.

    Raises `NotFoundError` (LEDGER_NOT_COMMITTED, RECEIPT_NOT_FOUND), `GradeError` for a document that is not what was
    committed, forged or inconsistent, `ConfigurationError`, and the errors of the chain and of fetching.
    """
    if hotkey is None and (file is None or key is None):
        raise ConfigurationError(
            "LEDGER_KEY_MISSING",
            "it is not said whose ledger this should be",
            hint="give --hotkey ADDRESS, or FILE together with --key HEX",
        )
    if key is not None and not is_digest(key):
        raise ConfigurationError(
            "RECEIPT_KEY_NOT_HEX",
            "the key is not 64 lower-case hexadecimal characters",
            hint="give the validator's 32-byte Ed25519 public key",
        )
    settings = resolve(choice.config, choice.overrides()).settings
    found = asyncio.run(_on_chain(settings, hotkey)) if hotkey is not None else None
    data = _read(Path(file)) if file is not None else asyncio.run(_fetch(settings, found))
    result = _verified(data, found, key)
    Output("ledger verify", as_json=as_json).result(result, lambda console: _show(console, result))


async def _on_chain(settings: Settings, hotkey: str) -> _OnChain:
    from chain.abi import Storage
    from chain.client import ChainClient
    from chain.ledger_pointer import read_commitment

    netuid = settings.chain.netuid
    async with ChainClient.from_settings(settings.chain) as client:
        block = await client.finalized_head()
        await client.require_subnet(netuid, block)
        (raw,) = await client.read_raw(block, [(Storage.COMMITMENT_OF, [netuid, hotkey])])
        stored = read_commitment(raw)
        if stored.pointer is None:
            raise _not_committed(hotkey, netuid, block.number, stored)
        return _OnChain(stored.block, stored.pointer, await client.genesis_hash(), netuid, hotkey)


def _not_committed(hotkey: str, netuid: int, block: int, stored: LedgerCommitment) -> NotFoundError:
    what = {
        "none": "nothing",
        "sealed": "a sealed submission",
        "other-version": "a ledger in a form that this version does not read",
    }.get(stored.kind, "something that is no ledger")
    return NotFoundError(
        "LEDGER_NOT_COMMITTED",
        f"At block {block} hotkey {hotkey} has committed {what} on subnet {netuid}.",
        hint="a validator commits its ledger when `publication.ledger_url` is set",
    )


async def _fetch(settings: Settings, found: _OnChain | None) -> bytes:
    from intake.fetch import ArchiveFetcher, FetchPolicy

    policy = replace(FetchPolicy.from_settings(settings.intake, settings.profile), archive_bytes=RECEIPT_BYTES)
    async with ArchiveFetcher(policy) as fetcher:
        return (await fetcher.fetch(found.pointer.document_url if found else "")).data


def _verified(data: bytes, found: _OnChain | None, key: str | None) -> VerifiedLedger:
    digest = sha256_hex(data)
    if found is not None and digest != found.pointer.digest:
        raise GradeError(
            "LEDGER_DIGEST_DIFFERS",
            f"the document has digest {digest}, and {found.pointer.digest} is committed",
            hint="right after a crown try again after the next epoch",
        )
    receipt_key = found.pointer.receipt_key if found is not None else key or ""
    if key is not None and key != receipt_key:
        raise GradeError(
            "LEDGER_FOREIGN", f"the hotkey has committed receipt key {receipt_key[:12]}, and {key[:12]} was asked for"
        )
    predicate = read_ledger_predicate(verify(data, [bytes.fromhex(receipt_key)]))
    state = check_ledger(predicate)
    named = (predicate.hotkey, predicate.netuid, predicate.genesis_hash)
    if found is not None and named != (found.hotkey, found.netuid, found.genesis_hash):
        raise GradeError(
            "LEDGER_FOREIGN",
            f"the document is the ledger of hotkey {predicate.hotkey} on subnet {predicate.netuid} of chain "
            f"{predicate.genesis_hash[:10]}, not of the hotkey that committed it",
        )
    crowns = tuple(
        LiveCrown(
            one.target_id, one.hotkey, one.content_hash, one.speedup_ppm, one.crowned_block,
            predicate.crown_receipts.get(one.event_digest, ""),
        )
        for one in state.crowns
    )
    return VerifiedLedger(
        digest=digest,
        receipt_key=receipt_key,
        hotkey=predicate.hotkey,
        netuid=predicate.netuid,
        genesis_hash=predicate.genesis_hash,
        committed_block=found.block if found is not None else 0,
        url=found.pointer.document_url if found is not None else "",
        head=predicate.head,
        events=len(predicate.events),
        crowns=crowns,
        proves=_proven(predicate, found),
        does_not_prove=(
            *(() if found is not None else (f"that the key is that of {predicate.hotkey}: the chain was not asked",)),
            "that the verdicts behind the crowns are right: check their receipts and attempt files",
            "that weights followed from it: a weights receipt names the ledger head it was computed from",
            "that no other ledger was committed before: compare with earlier blocks of an archive node",
        ),
    )


def _proven(predicate: LedgerPredicate, found: _OnChain | None) -> tuple[str, ...]:
    signed = "the key signed exactly these bytes"
    chained = (
        f"its events form an unbroken chain from nothing to {predicate.head[:12]}, each is one that settling makes, "
        "and the live crowns and claims are those they lead to"
    )
    if found is None:
        return signed, chained
    committed = f"hotkey {found.hotkey} committed this document, its place and its key in block {found.block}"
    return committed, signed, chained


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(RECEIPT_BYTES + 1)
    except OSError as error:
        raise NotFoundError("RECEIPT_NOT_FOUND", f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > RECEIPT_BYTES:
        raise GradeError("RECEIPT_MALFORMED", f"{path} has more than {RECEIPT_BYTES} bytes, which no ledger has")
    return data


def _show(console: Console, result: VerifiedLedger) -> None:
    console.print("ledger good", style="green")
    rows = [
        ("validator", f"{result.hotkey} on subnet {result.netuid}"),
        ("document", f"{result.digest}{' at ' + result.url if result.url else ''}"),
        ("signed by", result.receipt_key),
        ("events", f"{result.events}, head {result.head}"),
    ]
    rows += [("proves", one) for one in result.proves]
    rows += [("does not prove", one) for one in result.does_not_prove]
    facts(console, rows)
    if result.crowns:
        cells = [
            (one.target_id, one.hotkey, f"{one.speedup_ppm / 1_000_000:.4f}x", str(one.block)) for one in result.crowns
        ]
        console.print(table(("target", "hotkey", "speed-up", "block"), cells, whole=("hotkey",)))
