"""A signer whose key lies in another process, reached over a unix socket.

Invariants
1. It fulfils `chain.signer.Signer`, but signs whole extrinsics and key bindings only: loose bytes are refused, because
   the other side signs nothing that it cannot read.
2. Every signature is a connection of its own, so the signer process may be restarted at any time.
3. An answer is believed only if the signature verifies under the key that the signer named at the start.
4. Every exchange has a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import socket
import time
from pathlib import Path
from typing import Any

from chain.signer_frames import (
    HEADER,
    Answer,
    BindKey,
    FrameError,
    Hello,
    Identity,
    Refusal,
    Request,
    Signature,
    SignCall,
    length_of,
    pack,
    read_answer,
)
from config.errors import Blame, NetworkError, WalletError
from config.key_binding import KeyBinding

EXCHANGE_SECONDS = 30.0


class SocketSigner:
    """The key behind a unix socket; make one with `connect`."""

    def __init__(self, path: Path, identity: Identity) -> None:
        self._path = path
        self._identity = identity

    @classmethod
    def connect(cls, path: str | Path, netuid: int) -> SocketSigner:
        """Ask the signer at `path` whose key it has.

        Raises `NetworkError` (SIGNER_UNREACHABLE), `WalletError` (SIGNER_ANSWER_INVALID, SIGNER_PEER_REFUSED,
        SIGNER_SUBNET_REFUSED).
        """
        place = Path(path)
        answer = _exchange(place, Hello())
        if not isinstance(answer, Identity) or not _fits(answer):
            raise _strange(place, "it does not name its key")
        if answer.netuid != netuid:
            raise WalletError(
                "SIGNER_SUBNET_REFUSED", f"The signer at {place} signs for subnet {answer.netuid}, not for {netuid}.",
                hint="Start the signer with the `--netuid` of the node's settings.",
            )
        return cls(place, answer)

    @property
    def ss58_address(self) -> str:
        """The address, SS58 format 42."""
        return self._identity.ss58_address

    @property
    def public_key(self) -> bytes:
        """The 32-byte public key."""
        return self._identity.public_key

    @property
    def crypto_type(self) -> int:
        """0 = ed25519, 1 = sr25519."""
        return self._identity.crypto_type

    def sign(self, message: bytes) -> bytes:  # noqa: ARG002 - refused whatever it is
        """Refuse: loose bytes cannot be judged. Raises `WalletError` (SIGNER_CALL_UNREADABLE)."""
        raise WalletError(
            "SIGNER_CALL_UNREADABLE", "A signer process signs whole extrinsics, and these are loose bytes.",
            hint="Use a hotkey file for this.",
        )

    async def sign_unsigned_extrinsic(self, unsigned: Any) -> bytes:
        """Return the signature of an extrinsic that the SDK prepared.

        Raises `NetworkError` (SIGNER_UNREACHABLE, and what the signer says may heal) and `WalletError` (the signer's
        refusal, SIGNER_KEY_CHANGED).
        """
        request = SignCall(
            call=bytes(unsigned.call_data),
            spec_version=int(unsigned.spec_version),
            transaction_version=int(unsigned.transaction_version),
            genesis_hash=str(unsigned.genesis_hash),
            nonce=int(unsigned.nonce),
            era_period=int(unsigned.era["period"]),
            era_block=int(unsigned.era["current"]),
            era_block_hash=str(unsigned.era_block_hash),
        )
        return await self._signature(request, bytes(unsigned.payload))

    async def sign_key_binding(self, binding: KeyBinding, message: bytes) -> bytes:
        """Return the signature over `message`, which is that of `binding`.

        Raises as `sign_unsigned_extrinsic` does; a signer of an older release answers SIGNER_FRAME_INVALID.
        """
        return await self._signature(BindKey(bytes.fromhex(binding.receipt_key), binding.genesis_hash), message)

    async def _signature(self, request: Request, message: bytes) -> bytes:
        answer = await asyncio.to_thread(_exchange, self._path, request)
        if not isinstance(answer, Signature):
            raise _strange(self._path, "it sends no signature")
        if not self._verifies(message, answer.signature):
            raise WalletError(
                "SIGNER_KEY_CHANGED",
                f"The signer at {self._path} signed with another key than that of {self.ss58_address}, or other bytes.",
                hint="Start the node again after changing the signer's key.",
            )
        return answer.signature

    def _verifies(self, payload: bytes, signature: bytes) -> bool:
        core: Any = importlib.import_module("bittensor_core")
        try:
            keypair = core.Keypair(
                ss58_address=self.ss58_address, public_key=self.public_key, crypto_type=self.crypto_type
            )
            return bool(keypair.verify(payload, signature))
        except (ValueError, TypeError):  # a signature of another length
            return False


def _fits(identity: Identity) -> bool:
    """Whether the address is that of the public key."""
    core: Any = importlib.import_module("bittensor_core")
    try:
        return str(core.ss58_encode(identity.public_key, 42)) == identity.ss58_address
    except (ValueError, TypeError):
        return False


def _exchange(path: Path, request: Request) -> Answer:
    """Send one request and return the answer; a refusal is raised."""
    try:
        answer = _asked(path, request)
    except FrameError as error:
        raise _strange(path, str(error)) from error
    except OSError as error:
        raise NetworkError(
            "SIGNER_UNREACHABLE", f"The signer at {path} cannot be asked: {error.strerror or error}.",
            hint="Start `cacheon signer run` with this socket, as the same user or with --allow-uid.",
            blame=Blame.OPERATOR,
        ) from error
    if isinstance(answer, Refusal):
        if answer.retry:
            raise NetworkError(answer.code, answer.message, hint="It is tried again.", blame=Blame.OPERATOR)
        raise WalletError(answer.code, answer.message, hint="The signer's log says more.")
    return answer


def _asked(path: Path, request: Request) -> Answer:
    deadline = time.monotonic() + EXCHANGE_SECONDS
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(EXCHANGE_SECONDS)
        link.connect(str(path))
        with contextlib.suppress(BrokenPipeError):  # it has answered already, with a refusal, and hung up
            link.sendall(pack(request))
        length = length_of(_received(link, HEADER.size, deadline))
        return read_answer(_received(link, length, deadline))


def _received(link: socket.socket, count: int, deadline: float) -> bytes:
    data = b""
    while len(data) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        link.settimeout(left)
        part = link.recv(count - len(data))
        if not part:
            raise ConnectionError("it hung up")
        data += part
    return data


def _strange(path: Path, why: str) -> WalletError:
    return WalletError(
        "SIGNER_ANSWER_INVALID", f"What listens at {path} is no signer of this release: {why}.",
        hint="Check `chain.signer_socket`, and that signer and node are of one release.",
    )
