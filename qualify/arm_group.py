"""A group of ranks as the referee holds it: one arm with several processes, frozen and timed together.

Invariants
1. All ranks are asked at once and are frozen but for the time from the first resume until the last answer. A rank that
   has answered keeps running until then, because others may still need what it has sent; that time is timed, and its
   outputs are judged as they are when everything stands still.
2. The first rank that fails ends the call for all: nobody waits for ranks that wait for it. The fault names the rank.
   A rank that ended explains the complaints of the others, unless it had said itself why it would.
3. One deadline holds for all. Ranks that wait for each other for ever miss it together; it names those without answer.
4. Every rank stands still between calls, by its own processor time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import select
import socket
import time
from collections.abc import Sequence
from typing import NoReturn

from qualify.arm_handle import (
    FAILURE_KINDS,
    PROMPT_PART,
    WATCH_NS,
    Arm,
    ArmError,
    process_identity,
)
from qualify.arm_plan import ArmPlan, encode_plan
from qualify.call_memory import CallMemory
from qualify.group_memory import GroupMemory
from qualify.protocol import (
    FRAME_BYTES,
    NONCE_BYTES,
    Call,
    FrameKind,
    Malformed,
    Reply,
    decode_reply,
    encode_call,
    encode_go,
)
from qualify.sandbox.client import SandboxedProcess, Zygote
from qualify.sandbox.policy import SandboxPolicy
from qualify.starvation import CoreUse, combined, read_use, wait_for
from qualify.stillness import Rest, settle

_DEATH_SECONDS = 0.1  # within which the death of a rank explains what another one raised


class ArmGroup(Arm):
    """The sandboxed ranks of one role. Use as a context manager, like an arm."""

    def __init__(
        self, process: SandboxedProcess, controls: Sequence[socket.socket], memory: CallMemory, core: int
    ) -> None:
        super().__init__(process, controls[0], memory, core)
        self.identity = "+".join(map(process_identity, process.host_pids))
        self._controls = tuple(controls)
        self._rests = [Rest(0, ()) for _ in controls]

    @classmethod
    def start(
        cls, zygote: Zygote, plan: ArmPlan, policy: SandboxPolicy, memory: CallMemory, *, deadline_ms: int
    ) -> ArmGroup:
        """Fork the ranks, wait until all have loaded their implementations, and leave them frozen.

        `memory` is a `GroupMemory` of as many ranks as the policy has. Raises as `Arm.start` does.
        """
        assert isinstance(memory, GroupMemory)
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as childs:
            controls, descriptors = [], []
            for own in memory.ranks:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                ours.setblocking(False)
                controls.append(undo.enter_context(ours))
                descriptors += [childs.enter_context(theirs).fileno(), *own.descriptors]
            process = zygote.spawn("arm", policy, descriptors, encode_plan(plan))
            undo.pop_all()
        group = cls(process, controls, memory, policy.cores[0] if policy.cores else 0)
        try:
            group._await_message(deadline_ms)
            group._stop()
            group._settle()
            group._take_answers(bytes.fromhex(plan.hello), FrameKind.READY)
        except BaseException:
            group.close()
            raise
        return group

    def place(
        self,
        implementation: int,
        extents: Sequence[int],
        offsets: Sequence[int],
        deadline_ms: int,
        scalars: Sequence[float] = (),
    ) -> int:
        """Have the arguments of the next call built on every rank; `offsets` are those of all ranks in a row."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        call = Call(nonce, implementation, tuple(extents), (), scalars=tuple(scalars))
        return self._ask_all(self._frames(call, offsets), nonce, deadline_ms)

    def call(self, deadline_ms: int) -> int:
        """Run the placed call on all ranks; return the ns from the first resume until all had answered and stood."""
        self.calls += 1
        nonce = secrets.token_bytes(NONCE_BYTES)
        return self._ask_all([encode_go(nonce)] * len(self._controls), nonce, deadline_ms)

    def prepare(self, implementation: int, extents: Sequence[int], offsets: Sequence[int], deadline_ms: int) -> int:
        """Run the load-time half of every rank on its own weights; the rest is as for `Arm.prepare`."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        call = Call(nonce, implementation, tuple(extents), (), prepare=True)
        return self._ask_all(self._frames(call, offsets), nonce, deadline_ms)

    def require_stillness(self) -> None:
        """Raise `ArmError` when a rank is not frozen, or has run since it was; as for one arm, once is forgiven."""
        if not self.process.is_stopped():
            raise ArmError("protocol", "a rank was running although it had been stopped")
        for rank, pid in enumerate(self.process.host_pids):
            self._rests[rank] = self._require_rest(pid, self._rests[rank], f"rank {rank}")

    def _frames(self, call: Call, offsets: Sequence[int]) -> list[bytes]:
        count = len(offsets) // len(self._controls)
        starts = range(0, len(offsets), count)
        return [encode_call(dataclasses.replace(call, offsets=tuple(offsets[at : at + count]))) for at in starts]

    def _ask_all(self, frames: Sequence[bytes], nonce: bytes, deadline_ms: int) -> int:
        """Let all ranks run until every one has answered. They are frozen before and after."""
        self._require_silence()
        self.require_stillness()
        try:
            for control, frame in zip(self._controls, frames, strict=True):
                control.send(frame)
        except OSError:
            self._raise_end("a rank was gone before the call")
        started = time.monotonic_ns()
        self.process.resume()
        self._await_message(deadline_ms)
        self._stop()
        elapsed = time.monotonic_ns() - started
        self._settle()
        self._take_answers(nonce, FrameKind.DONE)
        return elapsed

    def _await_message(self, deadline_ms: int) -> None:
        """Wait until all ranks sent something, or one of them failed or hung up."""
        waiting = {control.fileno(): rank for rank, control in enumerate(self._controls)}
        poll = select.poll()
        for descriptor in waiting:
            poll.register(descriptor, select.POLLIN)
        begin, use = time.monotonic_ns(), None
        watched = begin + (WATCH_NS if self._watch else 0)
        prompt, deadline = (begin + ms * 1_000_000 for ms in (deadline_ms // PROMPT_PART, deadline_ms))
        while waiting:
            now = time.monotonic_ns()
            if now >= prompt and use is None:  # as for one arm, only calls that are slow already pay for this
                use = self._read_use()
            if now >= deadline:
                self._raise_late_ranks(sorted(waiting.values()), deadline_ms, use or self._read_use())
            until = now if now < watched else (prompt if now < prompt else deadline)
            events, stood = wait_for(poll, (until - now) / 1e6, apart=self._apart)
            prompt, deadline = prompt + stood, deadline + stood
            for descriptor, _ in events:
                rank = waiting.pop(descriptor)
                poll.unregister(descriptor)
                if waiting and self._has_failed(rank):
                    return

    def _has_failed(self, rank: int) -> bool:
        """Say whether what a rank sent, which stays where it is, makes waiting for the others pointless."""
        try:
            message = self._controls[rank].recv(FRAME_BYTES + 1, socket.MSG_PEEK)
        except OSError:
            return True
        reply = decode_reply(message)
        return isinstance(reply, Malformed) or reply.failure is not None

    def _take_answers(self, nonce: bytes, wanted: FrameKind) -> None:
        """Read what every rank sent; all are stopped by now. Raises `ArmError` for the first fault."""
        messages = [self._read(rank) for rank in range(len(self._controls))]
        replies = [None if message is None else decode_reply(message) for message in messages]
        failed = [rank for rank, reply in enumerate(replies) if isinstance(reply, Reply) and reply.failure is not None]
        if b"" in messages or (failed and self._is_over()):
            self._raise_first_end(messages, replies)
        if failed:
            self._raise_failure(failed[0], replies[failed[0]])
        for rank, reply in enumerate(replies):
            if reply is None:
                continue  # another rank is why nobody waited for this one
            if isinstance(reply, Malformed):
                raise ArmError("protocol", f"rank {rank}: {reply.reason}")
            if reply.nonce != nonce or reply.kind is not wanted:
                raise ArmError("protocol", f"rank {rank} answered something else than it was asked")
        self._require_silence()

    def _read(self, rank: int) -> bytes | None:
        """Return the message of a rank; empty when it hung up, None when it has sent nothing."""
        try:
            return self._controls[rank].recv(FRAME_BYTES + 1)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _is_over(self) -> bool:
        """Say whether a rank has ended, and with it the group."""
        try:
            self.process.wait(_DEATH_SECONDS)
        except TimeoutError:
            return False
        return True

    def _raise_first_end(self, messages: Sequence[bytes | None], replies: Sequence[Reply | Malformed | None]) -> None:
        """Raise the fault of the rank that ended first: what it said, or how it ended."""
        if not self._is_over():
            self._raise_end(f"rank {messages.index(b'')} hung up")
        first = self.process.wait().rank
        self._raise_failure(first, replies[first])
        self._raise_end("the group ended without an answer")

    def _raise_failure(self, rank: int, reply: Reply | Malformed | None) -> None:
        if isinstance(reply, Reply) and reply.failure is not None:
            raise ArmError(FAILURE_KINDS[reply.failure], f"rank {rank}: {reply.text}")

    def _raise_late_ranks(self, ranks: Sequence[int], deadline_ms: int, use: CoreUse) -> NoReturn:
        which = "any rank" if len(ranks) == len(self._controls) else " and ".join(f"rank {rank}" for rank in ranks)
        self._raise_late(use, f"no answer from {which} within {deadline_ms} ms")

    def _read_use(self) -> CoreUse:
        return combined([read_use(pid, self.core) for pid in self.process.host_pids])

    def _settle(self) -> None:
        self._rests = [settle(pid) for pid in self.process.host_pids]

    def _require_silence(self) -> None:
        for rank in range(len(self._controls)):
            message = self._read(rank)
            if message == b"":
                self._raise_end("the group ended between two calls")
            if message is not None:
                raise ArmError("protocol", f"rank {rank} sent a message that answers nothing")

    def _name(self, rank: int) -> str:
        return f"rank {rank}"

    def _hang_up(self) -> None:
        for control in self._controls:
            control.close()
