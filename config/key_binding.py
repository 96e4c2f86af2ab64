"""What a key binding says, and the one message that a hotkey signs for it. `chain.key_binding` signs and verifies.

Invariant: the payload follows from the five fields alone, so that a signer process builds it itself.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from config.canonical import sha256_hex
from config.statement import STATEMENT_TYPE, Statement, Subject, payload_of

KEY_BINDING_V1 = "urn:cacheon:receipt:key-binding.v1"

_Key = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
_Address = Annotated[str, msgspec.Meta(pattern="^[1-9A-HJ-NP-Za-km-z]{40,60}$")]
_Genesis = Annotated[str, msgspec.Meta(pattern="^0x[0-9a-f]{64}$")]
_Netuid = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class KeyBinding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`receipt_key` (32 public bytes in hex) signs the receipts of `hotkey` on subnet `netuid` of the chain with
    `genesis_hash`; `scheme` is how the hotkey signs."""

    receipt_key: _Key
    hotkey: _Address
    scheme: Literal["ed25519", "sr25519"]
    genesis_hash: _Genesis
    netuid: _Netuid


def binding_payload(binding: KeyBinding) -> bytes:
    """Return the canonical bytes of the statement that `binding` holds."""
    subject = Subject("receipt-key", {"sha256": sha256_hex(bytes.fromhex(binding.receipt_key))})
    return payload_of(Statement(STATEMENT_TYPE, (subject,), KEY_BINDING_V1, msgspec.to_builtins(binding)))
