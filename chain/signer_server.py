"""The process that holds a key: listens on a unix socket and signs what `chain.signer_policy` lets it.

Invariants
1. Only processes of the allowed users are answered (SO_PEERCRED, which the kernel fills in); others are told so and
   cut off.
2. Reading is bounded: frames have a limit, connections a number, a deadline for each frame and for each answer.
3. Metadata comes from the signer's own chain connection, never from who asks. The first genesis that it sees is that of
   the only chain it signs for.
4. Every signature and every refusal is one log line, with the digest of what was signed.
5. An old socket file of a signer that is gone is replaced; that of one that answers, or any other file, never.
6. Nobody else can put a socket of his own in the place of ours: a folder in which every user may delete is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from chain.client import ChainClient
from chain.signer import Signer
from chain.signer_frames import (
    FRAME_BYTES,
    HEADER,
    Answer,
    BindKey,
    FrameError,
    Hello,
    Identity,
    Refusal,
    Signature,
    SignCall,
    length_of,
    pack,
    read_request,
)
from chain.signer_policy import judge, judge_binding
from config.canonical import sha256_hex
from config.errors import ChainError, HostError, NetworkError, WalletError

CONNECTIONS = 16
FRAME_SECONDS = 10.0  # for the bytes of one frame, and for taking an answer
IDLE_SECONDS = 60.0  # between two frames
_CREDENTIALS = struct.Struct("3i")

Log = Callable[..., None]  # an event name and its keys


class ChainRuntime:
    """The genesis and the present codec of the signer's own chain, read when they are first needed."""

    def __init__(self, client: ChainClient) -> None:
        self._client = client
        self._codec: Any = None
        self._genesis = ""
        self._lock = asyncio.Lock()

    async def of(self, spec_version: int) -> tuple[Any, str]:
        """Return the codec, asked anew when it is not of `spec_version`, and the genesis hash.

        Raises `NetworkError` and `ChainError` of the client.
        """
        async with self._lock:
            if self._codec is None or int(self._codec.spec_version) != spec_version:
                genesis = await self._client.genesis_hash()
                self._codec = await self._client.signing_codec()
                self._genesis = self._genesis or genesis
            return self._codec, self._genesis

    async def genesis(self) -> str:
        """Return the genesis hash of the one chain. Raises `NetworkError` and `ChainError` of the client."""
        async with self._lock:
            self._genesis = self._genesis or await self._client.genesis_hash()
            return self._genesis


@dataclass
class SignerServer:
    """Answers on one socket. `uids` are the users whose processes may ask."""

    key: Signer
    netuid: int
    runtime: ChainRuntime
    uids: Collection[int]
    log: Log
    _open: int = field(default=0, init=False)

    async def serve(self, path: Path, ready: Callable[[], None] = lambda: None) -> None:
        """Listen at `path` until cancelled. Raises `HostError` (SIGNER_SOCKET_UNUSABLE)."""
        listening = bind(path, others=bool(set(self.uids) - {os.geteuid()}))
        made = os.stat(path)
        try:
            server = await asyncio.start_unix_server(self._connected, sock=listening, limit=FRAME_BYTES)
            async with server:
                ready()
                await server.serve_forever()
        finally:
            listening.close()
            with contextlib.suppress(OSError):
                now = os.lstat(path)
                if (now.st_dev, now.st_ino) == (made.st_dev, made.st_ino):  # not that of a successor
                    os.unlink(path)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            uid = peer_uid(writer.get_extra_info("socket"))
            if uid not in self.uids:
                self.log("signer.peer_refused", uid=uid)
                await _send(writer, Refusal("SIGNER_PEER_REFUSED", f"processes of uid {uid} are not answered"))
            elif self._open > CONNECTIONS:
                await _send(writer, Refusal("SIGNER_BUSY", f"{CONNECTIONS} connections are open", retry=True))
            else:
                await self._converse(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # who asked is gone, or too slow
        finally:
            self._open -= 1
            writer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            async with asyncio.timeout(IDLE_SECONDS):
                header = await reader.readexactly(HEADER.size)
            try:
                length = length_of(header)
                async with asyncio.timeout(FRAME_SECONDS):
                    body = await reader.readexactly(length)
                answer = await self._answer(body)
            except FrameError as error:
                self.log("signer.refused", code="SIGNER_FRAME_INVALID", reason=str(error))
                await _send(writer, Refusal("SIGNER_FRAME_INVALID", str(error)))
                return  # where the next frame begins is not known
            await _send(writer, answer)

    async def _answer(self, body: bytes) -> Answer:
        request = read_request(body)
        if isinstance(request, Hello):
            return Identity(self.key.ss58_address, bytes(self.key.public_key), self.key.crypto_type, self.netuid)
        try:
            return await (self._bind(request) if isinstance(request, BindKey) else self._sign(request))
        except (NetworkError, ChainError) as error:
            self.log("signer.chain_away", code=error.code, reason=error.message)
            return Refusal("SIGNER_CHAIN_AWAY", f"the signer cannot ask its chain: {error.message}", retry=True)
        except WalletError as error:
            self.log("signer.refused", code=error.code, reason=error.message)
            return Refusal(error.code, error.message)

    async def _sign(self, request: SignCall) -> Signature:
        codec, genesis = await self.runtime.of(request.spec_version)
        judged = judge(request, codec, netuid=self.netuid, genesis_hash=genesis)
        signature = bytes(self.key.sign(judged.payload))
        self.log(
            "signer.signed", call=judged.call, netuid=judged.netuid, nonce=request.nonce, era_block=request.era_block,
            era_period=request.era_period, spec_version=request.spec_version, call_digest=sha256_hex(request.call),
        )
        return Signature(signature)

    async def _bind(self, request: BindKey) -> Signature:
        genesis = await self.runtime.genesis()
        scheme: Literal["ed25519", "sr25519"] = "ed25519" if self.key.crypto_type == 0 else "sr25519"
        message = judge_binding(
            request, hotkey=self.key.ss58_address, scheme=scheme, netuid=self.netuid, genesis_hash=genesis
        )
        signature = bytes(self.key.sign(message))
        self.log("signer.signed", call="key binding", netuid=self.netuid, receipt_key=request.receipt_key.hex())
        return Signature(signature)


def bind(path: Path, *, others: bool) -> socket.socket:
    """Return a listening socket at `path`; `others` lets processes of other users reach it.

    Raises `HostError` (SIGNER_SOCKET_UNUSABLE).
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _require_closed_folder(path)
        _make_room(path)
        before = os.umask(0o177)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
        if others:
            os.chmod(path, 0o666)
        listening.listen(CONNECTIONS)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise _unusable(path, error.strerror or str(error)) from error
    except BaseException:
        listening.close()
        raise
    return listening


def peer_uid(link: socket.socket) -> int:
    """Return the user id of the process at the other end."""
    data = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[1])


def _require_closed_folder(path: Path) -> None:
    mode = os.stat(path.parent).st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise _unusable(path, f"every user may replace files in {path.parent}")


def _make_room(path: Path) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise _unusable(path, "a file that is no socket is there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(5.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise _unusable(path, "another signer answers there")


async def _send(writer: asyncio.StreamWriter, answer: Answer) -> None:
    writer.write(pack(answer))
    async with asyncio.timeout(FRAME_SECONDS):
        await writer.drain()


def _unusable(path: Path, reason: str) -> HostError:
    return HostError(
        "SIGNER_SOCKET_UNUSABLE", f"The signer cannot listen at {path}: {reason}.",
        hint="Name a path of at most 107 bytes in a folder that only the signer's user can write to.",
    )
