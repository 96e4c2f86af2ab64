"""What a signer process signs: a closed list of calls, for one subnet, in extrinsics that it frames itself, and the
statement that a receipt key is its validator's.

Invariants
1. The call is decoded, to its last byte, with the metadata that the signer itself read from its chain; what does not
   decode, or is no call of `ALLOWED`, or names another subnet, is refused.
2. The extrinsic is framed here: the signer's own genesis and runtime version, a mortal era of at most `ERA_BLOCKS`
   blocks, no tip. There is no request that could say otherwise.
3. The one statement is built here, from the signer's own address, subnet and genesis: who asks chooses the 32 bytes of
   the receipt key and nothing else.
4. Pure: no key, no socket, no chain.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from chain.abi import Call
from chain.signer_frames import BindKey, SignCall
from config.errors import WalletError
from config.key_binding import KeyBinding, binding_payload
from config.statement import pre_authentication

ALLOWED = frozenset({Call.SET_WEIGHTS, Call.COMMIT_WEIGHTS, Call.SET_COMMITMENT})
ERA_BLOCKS = 256
_CALL_BYTES = 16 * 1024
_HASH = re.compile(r"0x[0-9a-f]{64}")
_NUMBER_LIMIT = 2**32
_KEY_BYTES = 32
_HASHED_ABOVE = 256  # bytes; the runtime verifies a longer extrinsic payload by its hash, so longer bytes are none


class Judged(msgspec.Struct, frozen=True):
    """A request that may be signed: the exact bytes to sign, and what the log says of them."""

    payload: bytes
    call: str
    netuid: int


def judge(request: SignCall, codec: Any, *, netuid: int, genesis_hash: str) -> Judged:
    """Return what to sign.

    Raises `WalletError`: SIGNER_CHAIN_DIFFERS, SIGNER_RUNTIME_UNKNOWN, SIGNER_ERA_REFUSED, SIGNER_CALL_UNREADABLE,
    SIGNER_CALL_REFUSED, SIGNER_SUBNET_REFUSED.
    """
    if request.genesis_hash != genesis_hash:
        raise _other_chain(request.genesis_hash, genesis_hash)
    if (request.spec_version, request.transaction_version) != (codec.spec_version, codec.transaction_version):
        raise _refused(
            "SIGNER_RUNTIME_UNKNOWN", f"the request is for runtime {request.spec_version}, the chain's present one is "
            f"{codec.spec_version}"
        )
    _check_frame(request)
    call, arguments = _decoded(request.call, codec)
    if call not in ALLOWED:
        raise _refused("SIGNER_CALL_REFUSED", f"{call} is not among the calls that are signed: {_listed()}")
    if arguments.get("netuid") != netuid:
        raise _refused(
            "SIGNER_SUBNET_REFUSED", f"the call is for subnet {arguments.get('netuid')}, the signer's is {netuid}"
        )
    payload = codec.signature_payload(
        request.call, era={"period": request.era_period, "current": request.era_block}, nonce=request.nonce, tip=0,
        tip_asset_id=None, genesis_hash=genesis_hash, era_block_hash=request.era_block_hash,
    )
    return Judged(bytes(payload), str(call), netuid)


def judge_binding(
    request: BindKey, *, hotkey: str, scheme: Literal["ed25519", "sr25519"], netuid: int, genesis_hash: str
) -> bytes:
    """Return the message that vouches for a receipt key.

    Raises `WalletError`: SIGNER_CHAIN_DIFFERS, SIGNER_KEY_REFUSED.
    """
    if request.genesis_hash != genesis_hash:
        raise _other_chain(request.genesis_hash, genesis_hash)
    if len(request.receipt_key) != _KEY_BYTES:
        raise _refused(
            "SIGNER_KEY_REFUSED", f"a receipt key of {len(request.receipt_key)} bytes; it has {_KEY_BYTES}"
        )
    binding = KeyBinding(request.receipt_key.hex(), hotkey, scheme, genesis_hash, netuid)
    message = pre_authentication(binding_payload(binding))
    if len(message) <= _HASHED_ABOVE:
        raise _refused("SIGNER_KEY_REFUSED", "the statement is so short that it could be an extrinsic")
    return message


def _check_frame(request: SignCall) -> None:
    period = request.era_period
    if not (4 <= period <= ERA_BLOCKS and period & (period - 1) == 0):
        raise _refused(
            "SIGNER_ERA_REFUSED", f"an era of {period} blocks; it has to be a power of two from 4 to {ERA_BLOCKS}"
        )
    if not (0 <= request.nonce < _NUMBER_LIMIT and 0 < request.era_block < _NUMBER_LIMIT):
        raise _refused("SIGNER_ERA_REFUSED", "the nonce or the block of the era is out of range")
    if not _HASH.fullmatch(request.era_block_hash):
        raise _refused("SIGNER_ERA_REFUSED", "the hash of the era's block is not 0x and 64 hexadecimal digits")


def _decoded(data: bytes, codec: Any) -> tuple[str, dict[str, object]]:
    if not 0 < len(data) <= _CALL_BYTES:
        raise _refused("SIGNER_CALL_UNREADABLE", f"a call of {len(data)} bytes; at most {_CALL_BYTES} are read")
    try:
        decoded = codec.decode_call(data)
        name = f"{decoded['call_module']}.{decoded['call_function']}"
        return name, {argument["name"]: argument["value"] for argument in decoded["call_args"]}
    except Exception as error:
        # The codec raises its own and built-in errors for bytes that are no call; none of them may leave this room.
        raise _refused("SIGNER_CALL_UNREADABLE", f"these bytes are no call of the chain's runtime: {error}") from error


def _listed() -> str:
    return ", ".join(sorted(ALLOWED))


def _other_chain(asked: str, own: str) -> WalletError:
    return _refused(
        "SIGNER_CHAIN_DIFFERS", f"the request is for chain {asked[:10]}, the signer is connected to chain {own[:10]}"
    )


def _refused(code: str, message: str) -> WalletError:
    return WalletError(code, " ".join(message.split())[:400])
