"""Messages between client and fork server, and between fork server and the trusted stages of its children.

Invariants
1. Both ends of every channel are our code; foreign code never holds one of these sockets.
2. One message is one packet (SOCK_SEQPACKET): nothing is framed, split or merged.
3. Packets are bounded by `PACKET_BYTES`; arguments by `ARGUMENT_BYTES`; descriptors by `DESCRIPTOR_COUNT`.
4. A child inherits all of the fork server's memory, what was freed included. Therefore what tells one run from another,
   and what foreign code wrote, never enters it: a run's `Particulars` go there, and its log comes back, as files.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from qualify.sandbox.outcome import LOG_TAIL_BYTES, Outcome
from qualify.sandbox.policy import SandboxPolicy

ARGUMENT_BYTES = 64 << 10
PACKET_BYTES = 192 << 10
DESCRIPTOR_COUNT = 60
_CREDENTIALS = struct.Struct("3i")
_DESCRIPTOR = struct.Struct("i")


class ZygoteConfig(msgspec.Struct, frozen=True):
    """What a fork server is started with."""

    control_descriptor: int
    client_pid: int
    python_path: tuple[str, ...]
    project_root: str
    preload: tuple[str, ...]
    entries: dict[str, str]
    ablation: bool = False


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The fork server is warm, single-threaded and listening."""

    pid: int


class StartFailed(msgspec.Struct, frozen=True, tag="start_failed"):
    """The fork server cannot be used; `code` is one of this room's error codes."""

    code: str
    reason: str


class SpawnRequest(msgspec.Struct, frozen=True, tag="spawn"):
    """Run `entry`, or a `tool`, under the limits of `policy`.

    Descriptors travel beside it: first the run's channel, then a file with its `Particulars`, then the declared ones.
    """

    entry: str
    policy: SandboxPolicy
    tool: bool = False


class Particulars(msgspec.Struct, frozen=True):
    """What only the child of one run may know: what it is given, and from where. `command` is the program of a tool.

    `readonly` and `environment` are those of its policy.
    """

    argument: bytes
    command: tuple[str, ...]
    readonly: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The child is confined and starts now; the pidfds of its pid 1 and of each of its ranks travel beside it.

    For a tool its pid 1 stands for both, and a descriptor of its /scratch follows.
    """

    host_pids: tuple[int, ...]
    layers: tuple[str, ...]


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The last message of a run. Its log travels beside it, as a file, and is put into the outcome where it arrives,
    with its size: even a number would be a message to children that are forked later."""

    outcome: Outcome


class ReaperAlive(msgspec.Struct, frozen=True, tag="reaper"):
    """Pid 1 of the new pid namespace exists."""


class ScratchOpen(msgspec.Struct, frozen=True, tag="scratch"):
    """A descriptor of the run's /scratch travels beside this."""


class ToolWaits(msgspec.Struct, frozen=True, tag="tool_waits"):
    """Bubblewrap `outer_pid` has made the namespaces of pid 1, `init_pid`, and waits for the word."""

    outer_pid: int
    init_pid: int
    layers: tuple[str, ...]


class ChildReady(msgspec.Struct, frozen=True, tag="child_ready"):
    """The child, or one rank of a group, has verified its confinement and waits for the word."""

    layers: tuple[str, ...]
    rank: int = 0


class ChildRefused(msgspec.Struct, frozen=True, tag="child_refused"):
    """A stage could not put a layer in place."""

    layer: str
    reason: str


class ChildStatus(msgspec.Struct, frozen=True, tag="child_status"):
    """The child was reaped: raw wait status, CPU time, peak resident bytes. Of a group, the first rank that ended."""

    wait_status: int
    cpu_ns: int
    peak_rss_bytes: int
    rank: int = 0


ClientMessage = Started | StartFailed | Ready | Ended
StageMessage = ReaperAlive | ScratchOpen | ToolWaits | ChildReady | ChildRefused | ChildStatus

_client_decoder = msgspec.json.Decoder(ClientMessage)
_stage_decoder = msgspec.json.Decoder(StageMessage)
_request_decoder = msgspec.json.Decoder(SpawnRequest)
_particulars_decoder = msgspec.json.Decoder(Particulars)


def write_particulars(particulars: Particulars) -> int:
    """Return the descriptor of a new file that holds `particulars`; the caller closes it. Raises `OSError`."""
    descriptor = os.memfd_create("particulars", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(msgspec.json.encode(particulars))
    return descriptor


def read_particulars(descriptor: int) -> Particulars:
    """Read what `write_particulars` wrote; only for the child that it is meant for."""
    return _particulars_decoder.decode(os.pread(descriptor, os.fstat(descriptor).st_size, 0))


def send(channel: socket.socket, message: msgspec.Struct, descriptors: Sequence[int] = ()) -> None:
    """Send one message with descriptors. Raises `OSError` when the other end is gone or the packet is too large."""
    payload = msgspec.json.encode(message)
    ancillary = []
    if descriptors:
        ancillary.append((socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors)))
    channel.sendmsg([payload], ancillary)


def receive_request(control: socket.socket) -> tuple[SpawnRequest | None, list[int]]:
    """Return the next spawn request and its descriptors, or None when the client closed."""
    payload, descriptors = _receive(control)
    return (_request_decoder.decode(payload) if payload else None), descriptors


def receive_client(channel: socket.socket) -> tuple[ClientMessage | None, list[int]]:
    """Return the next message to the client and its descriptors, or None when the fork server is gone."""
    payload, descriptors = _receive(channel)
    message = _client_decoder.decode(payload) if payload else None
    if isinstance(message, Ended) and descriptors:
        size = os.fstat(descriptors[0]).st_size
        log = os.pread(descriptors[0], LOG_TAIL_BYTES, max(0, size - LOG_TAIL_BYTES))
        message = Ended(replace(message.outcome, log=log, log_bytes=size))
        for descriptor in descriptors:
            os.close(descriptor)
        descriptors = []
    return message, descriptors


def receive_stage(channel: socket.socket) -> tuple[StageMessage | None, int, int]:
    """Return the next message of a child's trusted stage, the host pid of its sender and a descriptor, or -1.

    None at end of file. The kernel fills in the pid: `SO_PASSCRED` must be set on `channel`.
    """
    size = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_DESCRIPTOR.size)
    payload, ancillary, _, _ = channel.recvmsg(PACKET_BYTES, size, socket.MSG_CMSG_CLOEXEC)
    pid, descriptor = 0, -1
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            pid = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0]
        elif level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptor = _DESCRIPTOR.unpack(data[: _DESCRIPTOR.size])[0]
    return (_stage_decoder.decode(payload) if payload else None), pid, descriptor


def _receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    payload, descriptors, _, _ = socket.recv_fds(channel, PACKET_BYTES, DESCRIPTOR_COUNT + 2)
    return payload, descriptors
