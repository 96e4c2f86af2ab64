"""Signed extrinsics: taking them apart and checking what the signature covers.

Invariants
1. Everything is cut from the raw bytes; what is signed is rebuilt from exactly those bytes and the chain's own
   spec version, genesis hash and era block hash.
2. Only version-4 extrinsics signed by a 32-byte account with ed25519 or sr25519 are taken.
"""

from __future__ import annotations

import msgspec

from chain.devnet.bounds import check_arguments
from chain.devnet.codec import SPEC_VERSION, TRANSACTION_VERSION, Codec, verify_signature
from chain.devnet.scale import Reader, ScaleError, blake2_256, byte_vector, u32

_SIGNED_V4 = 0x84
_BARE_V5 = b"\x05"
_ADDRESS_ID = 0
_SIGNATURE_BYTES = 64
_HASH_ABOVE_BYTES = 256
_IMMORTAL = 0


class Era(msgspec.Struct, frozen=True):
    """A mortality period; `period` 0 means immortal. Both numbers are blocks."""

    period: int
    phase: int

    def birth(self, current: int) -> int:
        """Return the block the signature is anchored to, seen from `current`."""
        if not self.period:
            return 0
        return (max(current, self.phase) - self.phase) // self.period * self.period + self.phase

    def death(self, current: int) -> int | None:
        """Return the first block in which the extrinsic is no longer valid, or None."""
        return self.birth(current) + self.period if self.period else None


class Extrinsic(msgspec.Struct, frozen=True, dict=True):
    """A decoded signed extrinsic; `extra` are the signed extensions' bytes inside the extrinsic."""

    raw: bytes
    hash: bytes
    signer: bytes
    signature: bytes
    signature_kind: int
    extra: bytes
    era: Era
    nonce: int
    tip: int
    call: bytes
    pallet: str
    function: str


def decode_extrinsic(raw: bytes, codec: Codec) -> Extrinsic:
    """Take a signed extrinsic apart; raises `ScaleError` for bytes that are not one of this runtime's."""
    outer = Reader(raw)
    reader = Reader(outer.sized_bytes())
    outer.done()
    if reader.unsigned(1) != _SIGNED_V4:
        raise ScaleError("not a signed version-4 extrinsic")
    if reader.unsigned(1) != _ADDRESS_ID:
        raise ScaleError("the signer is not an account id")
    signer = reader.take(32)
    kind = reader.unsigned(1)
    signature = reader.take(_SIGNATURE_BYTES)
    start = reader.position
    era = read_era(reader)
    nonce = reader.compact()
    tip = reader.compact()
    if reader.unsigned(1) != 0:
        raise ScaleError("metadata-hash checking is not offered")
    extra = reader.data[start : reader.position]
    call = reader.rest
    try:
        decoded = codec.decode_call(call)
    except ValueError as error:
        raise ScaleError(f"call: {error}") from error
    check_arguments(decoded["call_module"], decoded["call_function"], Reader(call, 2))
    return Extrinsic(
        raw=raw,
        hash=blake2_256(raw),
        signer=signer,
        signature=signature,
        signature_kind=kind,
        extra=extra,
        era=era,
        nonce=nonce,
        tip=tip,
        call=call,
        pallet=decoded["call_module"],
        function=decoded["call_function"],
    )


def read_era(reader: Reader) -> Era:
    """Read a mortality period; raises `ScaleError` for one the runtime would refuse."""
    first = reader.unsigned(1)
    if first == _IMMORTAL:
        return Era(0, 0)
    word = first | reader.unsigned(1) << 8
    period = 2 << (word & 0xF)
    quantum = max(period >> 12, 1)
    phase = (word >> 4) * quantum
    if period < 4 or phase >= period:
        raise ScaleError("malformed era")
    return Era(period, phase)


def signing_payload(
    extrinsic: Extrinsic, genesis_hash: bytes, era_hash: bytes, spec_version: int = SPEC_VERSION
) -> bytes:
    """Return the bytes the signature must cover."""
    additional = u32(spec_version) + u32(TRANSACTION_VERSION) + genesis_hash + era_hash + b"\x00"
    payload = extrinsic.call + extrinsic.extra + additional
    return blake2_256(payload) if len(payload) > _HASH_ABOVE_BYTES else payload


def signature_holds(extrinsic: Extrinsic, genesis_hash: bytes, era_hash: bytes, spec_version: int) -> bool:
    """Say whether the signer signed exactly this extrinsic for this chain, era and runtime."""
    payload = signing_payload(extrinsic, genesis_hash, era_hash, spec_version)
    return verify_signature(payload, extrinsic.signature, extrinsic.signer, extrinsic.signature_kind)


def inherent(call: bytes) -> bytes:
    """Return the bare extrinsic that carries `call`; inherents have format 5, signed extrinsics format 4."""
    return byte_vector(_BARE_V5 + call)
