"""Commitments: plain and timelock-encrypted data bound to a registered hotkey.

Invariants
1. One commitment per (netuid, hotkey); a new one replaces the old one, sealed or not.
2. The reveal hook opens a block: it walks the index by netuid and account id, opens every field whose round has a
   pulse, keeps the newest `REVEALS_KEPT` reveals oldest first, and turns what does not open into a failed field.
3. Fields are parsed from and written back as raw bytes, so payloads are stored exactly as they were sent.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chain.devnet.beacon import BeaconError, MalformedCiphertextError, unseal
from chain.devnet.bounds import BIG_RAW_BYTES, COMMITMENT_FIELDS, TIMELOCK_BYTES, argument_check, bounded
from chain.devnet.context import Context, call
from chain.devnet.faults import DispatchError
from chain.devnet.pallets.drand import oldest_round, pulse_signature
from chain.devnet.pallets.subtensor import is_registered
from chain.devnet.scale import Reader, ScaleError, byte_vector, compact, u16, u32, u64
from chain.devnet.storage import Session, StorageView
from chain.scale import ScaleReader

MIN_CHARGED_BYTES = 100
REVEALS_KEPT = 10
FAILED_REVEALS_SINCE = 446  # the first runtime that keeps a failed field
_RAW_0 = 1
_RAW_128 = 129
_HASHES = range(130, 134)
_TIMELOCKED = 134
_BIG_RAW = 136
_FAILED = 137
_DEPOSIT = bytes(8)
_HEAD_BYTES = len(_DEPOSIT) + 4
PALLET = "Commitments"
IndexEntry = tuple[int, bytes]


class Field(msgspec.Struct, frozen=True):
    """One `Data` field: variant, raw encoding, bytes of data inside and, when timelocked, ciphertext and round."""

    variant: int
    raw: bytes
    length: int = 0
    ciphertext: bytes = b""
    reveal_round: int = 0


def read_field(reader: ScaleReader) -> Field:
    """Read one field; raises `ScaleError` for an unknown variant or too much data."""
    start = reader.position
    variant, length = reader.unsigned(1), 0
    ciphertext, reveal_round = b"", 0
    if _RAW_0 <= variant <= _RAW_128:
        length = len(reader.take(variant - _RAW_0))
    elif variant in _HASHES:
        length = len(reader.take(32))
    elif variant in (_TIMELOCKED, _FAILED):
        ciphertext, reveal_round = reader.sized_bytes(), reader.unsigned(8)
        length = len(ciphertext)
        bounded("the ciphertext", length, TIMELOCK_BYTES)
    elif variant == _BIG_RAW:
        length = len(reader.sized_bytes())
        bounded("the data", length, BIG_RAW_BYTES)
    elif variant > _FAILED:
        raise ScaleError(f"no commitment field has variant {variant}")
    return Field(variant, reader.data[start : reader.position], length, ciphertext, reveal_round)


def read_fields(reader: ScaleReader) -> list[Field]:
    """Read a `CommitmentInfo`; raises `ScaleError` for too many fields."""
    count = reader.compact()
    bounded("the commitment", count, COMMITMENT_FIELDS)
    return [read_field(reader) for _ in range(count)]


@argument_check(PALLET, "set_commitment")
def _check_commitment(arguments: ScaleReader) -> None:
    arguments.take(2)
    read_fields(arguments)


def encode_fields(fields: Iterable[Field]) -> bytes:
    """Encode a `CommitmentInfo`."""
    pieces = [field.raw for field in fields]
    return compact(len(pieces)) + b"".join(pieces)


def read_index(state: StorageView) -> list[IndexEntry]:
    """Return the (netuid, account) pairs with a sealed commitment, in storage order."""
    raw = state.get_raw(PALLET, "TimelockedIndex")
    if raw is None:
        return []
    reader = Reader(raw)
    return [(reader.unsigned(2), reader.take(32)) for _ in range(reader.compact())]


def write_index(state: Session, entries: Iterable[IndexEntry]) -> None:
    """Store the index, ordered by netuid and account id as the runtime's set is."""
    ordered = sorted(set(entries))
    raw = compact(len(ordered)) + b"".join(u16(netuid) + who for netuid, who in ordered)
    state.put_raw(state.codec.key(PALLET, "TimelockedIndex"), raw)


@call(PALLET, "set_commitment", free=True)
def set_commitment(context: Context, signer: bytes, arguments: Reader) -> None:
    """Replace the signer's commitment on a subnet."""
    netuid = arguments.unsigned(2)
    fields = read_fields(arguments)
    state = context.state
    if not is_registered(state, netuid, signer):
        raise DispatchError(PALLET, "AccountNotAllowedCommit")
    if any(field.variant == _FAILED for field in fields):
        raise DispatchError(PALLET, "TimelockRevealFailedNotAllowed")
    info = encode_fields(fields)
    _charge_space(state, netuid, signer, max(sum(field.length for field in fields), MIN_CHARGED_BYTES))
    registration = _DEPOSIT + u32(context.block) + info
    state.put_raw(state.codec.key(PALLET, "CommitmentOf", (netuid, signer)), registration)
    state.put(PALLET, "LastCommitment", netuid, signer, value=context.block)
    sealed = [field for field in fields if field.variant == _TIMELOCKED]
    entry = (netuid, signer)
    index = [other for other in read_index(state) if other != entry]
    write_index(state, [*index, entry] if sealed else index)
    if sealed:
        detail = {"netuid": netuid, "who": signer, "reveal_round": sealed[0].reveal_round}
        context.emit(PALLET, "TimelockCommitment", detail)
    else:
        context.emit(PALLET, "Commitment", {"netuid": netuid, "who": signer})


def _charge_space(state: Session, netuid: int, who: bytes, size: int) -> None:
    epoch = int(state.get("SubtensorModule", "SubnetEpochIndex", netuid))
    usage = state.get(PALLET, "UsedSpaceOf", netuid, who) or {"last_epoch": epoch, "used_space": 0}
    used = (usage["used_space"] if usage["last_epoch"] == epoch else 0) + size
    if used > int(state.get(PALLET, "MaxSpace")):
        raise DispatchError(PALLET, "SpaceLimitExceeded")
    state.put(PALLET, "UsedSpaceOf", netuid, who, value={"last_epoch": epoch, "used_space": used})


def start_block(context: Context) -> None:
    """Reveal every sealed field whose round has come."""
    for netuid, who in read_index(context.state):
        _reveal(context, netuid, who)


def _reveal(context: Context, netuid: int, who: bytes) -> None:
    state = context.state
    key = state.codec.key(PALLET, "CommitmentOf", (netuid, who))
    raw = state.raw(key)
    if raw is None:
        _unindex(state, netuid, who)
        return
    fields = read_fields(Reader(raw, _HEAD_BYTES))
    kept: list[Field] = []
    opened: list[bytes] = []
    for field in fields:
        signature = pulse_signature(state, field.reveal_round) if field.variant == _TIMELOCKED else None
        expired = field.variant == _TIMELOCKED and field.reveal_round < oldest_round(state)
        if signature is None and not expired:
            kept.append(field)
            continue
        data, failure = _open(field, signature)
        if failure and state.codec.spec.metadata < FAILED_REVEALS_SINCE:
            continue  # earlier runtimes forgot what did not open, and said nothing
        if failure:
            raw_failed = bytes([_FAILED]) + field.raw[1:]
            kept.append(Field(_FAILED, raw_failed, field.length, field.ciphertext, field.reveal_round))
            detail = {"netuid": netuid, "who": who, "reveal_round": field.reveal_round, "error": failure}
            context.emit(PALLET, "CommitmentRevealFailed", detail)
        else:
            opened.append(data)
    if kept == fields:
        return
    if opened:
        _append_reveals(state, netuid, who, opened)
        for _ in opened:
            context.emit(PALLET, "CommitmentRevealed", {"netuid": netuid, "who": who})
    state.put_raw(key, raw[:_HEAD_BYTES] + encode_fields(kept) if kept else None)
    if not any(field.variant == _TIMELOCKED for field in kept):
        _unindex(state, netuid, who)


def _open(field: Field, signature: bytes | None) -> tuple[bytes, str]:
    """Return the plaintext, or empty bytes and the name of the metadata's `RevealFailure`."""
    if signature is None:
        return b"", "PulseExpired"
    try:
        data = unseal(field.ciphertext, signature)
    except MalformedCiphertextError:
        return b"", "CiphertextDeserialize"
    except BeaconError:
        return b"", "Decrypt"
    return (data, "") if data else (b"", "EmptyPlaintext")


def _unindex(state: Session, netuid: int, who: bytes) -> None:
    write_index(state, [entry for entry in read_index(state) if entry != (netuid, who)])


def read_reveals(state: StorageView, netuid: int, who: bytes) -> list[tuple[bytes, int]]:
    """Return the kept `(data, reveal block)` pairs of a hotkey, oldest first."""
    raw = state.get_raw(PALLET, "RevealedCommitments", netuid, who)
    if raw is None:
        return []
    reader = Reader(raw)
    return [(reader.sized_bytes(), reader.unsigned(8)) for _ in range(reader.compact())]


def _append_reveals(state: Session, netuid: int, who: bytes, opened: list[bytes]) -> None:
    block = state.block
    reveals = [*read_reveals(state, netuid, who), *((data, block) for data in opened)][-REVEALS_KEPT:]
    raw = compact(len(reveals)) + b"".join(byte_vector(data) + u64(number) for data, number in reveals)
    state.put_raw(state.codec.key(PALLET, "RevealedCommitments", (netuid, who)), raw)
