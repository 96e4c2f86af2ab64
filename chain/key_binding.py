"""The statement by which a hotkey vouches for a receipt key: made once, checked offline by anybody.

It is an in-toto Statement v1 in a DSSE envelope like every receipt, but signed with the hotkey. Its subject is the id
of the receipt key, its predicate says which key, for which validator of which chain and subnet.

Invariants
1. The message that is signed begins with `DSSEv1 ` and is longer than 256 bytes. The runtime checks a signature over an
   extrinsic of that length against its 32-byte hash, so this signature can never be one of an extrinsic.
2. One binding has one message; who signs builds it from the four facts, never from bytes that somebody hands over.
3. A binding is believed only for the hotkey that it names: the signature verifies under that address.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import Any, Literal

import msgspec

from chain.signer import Signer
from chain.signer_client import SocketSigner
from config.canonical import sha256_hex
from config.errors import GradeError
from config.key_binding import KEY_BINDING_V1, KeyBinding, binding_payload
from config.statement import open_envelope, pre_authentication, read_statement, seal

_SCHEMES: dict[str, int] = {"ed25519": 0, "sr25519": 1}


def binding_of(signer: Signer, receipt_key: bytes, genesis_hash: str, netuid: int) -> KeyBinding:
    """Return what `signer` is to vouch for."""
    return KeyBinding(receipt_key.hex(), signer.ss58_address, scheme_of(signer.crypto_type), genesis_hash, netuid)


def scheme_of(crypto_type: int) -> Literal["ed25519", "sr25519"]:
    """Return the name of a hotkey's signature scheme."""
    return "ed25519" if crypto_type == 0 else "sr25519"


async def sign_binding(signer: Signer, binding: KeyBinding) -> bytes:
    """Return the envelope of `binding`, signed by its hotkey, whether its key is here or in a signer process.

    Raises the errors of `SocketSigner.sign_key_binding`.
    """
    payload = binding_payload(binding)
    if isinstance(signer, SocketSigner):
        signature = await signer.sign_key_binding(binding, pre_authentication(payload))
    else:
        signature = bytes(await asyncio.to_thread(signer.sign, pre_authentication(payload)))
    return seal(payload, binding.hotkey, signature)


def verify_binding(data: bytes) -> KeyBinding:
    """Return the binding in an envelope that the hotkey which it names has signed.

    Raises `GradeError`: RECEIPT_MALFORMED, RECEIPT_KIND, KEY_BINDING_FORGED.
    """
    sealed = open_envelope(data)
    statement = read_statement(sealed.payload)  # it says which key must have signed it, so it is read first
    if statement.predicate_type != KEY_BINDING_V1:
        raise GradeError("RECEIPT_KIND", f"the receipt is {statement.predicate_type[:60]!r}, not {KEY_BINDING_V1!r}")
    try:
        binding = msgspec.convert(statement.predicate, KeyBinding, strict=True)
    except msgspec.ValidationError as error:
        raise GradeError("RECEIPT_MALFORMED", f"the key binding is malformed: {error}") from error
    if binding_payload(binding) != sealed.payload:  # another subject
        raise GradeError("RECEIPT_MALFORMED", "the key binding names another key in its subject than in its predicate")
    signatures = [signature for keyid, signature in sealed.signatures if keyid == binding.hotkey]
    if not signatures or not all(_verifies(binding, sealed.message, one) for one in signatures):
        raise GradeError(
            "KEY_BINDING_FORGED", f"hotkey {binding.hotkey} did not sign that receipt key {binding.receipt_key[:12]} "
            "is its own"
        )
    return binding


def key_id_of(binding: KeyBinding) -> str:
    """Return the id that receipts name the bound key by."""
    return sha256_hex(bytes.fromhex(binding.receipt_key))


def _verifies(binding: KeyBinding, message: bytes, signature: bytes) -> bool:
    core: Any = importlib.import_module("bittensor_core")
    try:
        keypair = core.Keypair(ss58_address=binding.hotkey, crypto_type=_SCHEMES[binding.scheme])
        return bool(keypair.verify(message, signature))
    except (ValueError, TypeError):  # no address, or a signature of another length
        return False
