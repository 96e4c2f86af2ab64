"""The arm: a loop inside the sandbox that runs one implementation on the memory it is handed.

Invariants
1. Everything here shares a process with hostile code, so nothing here is trusted and nothing here decides anything.
2. The arm knows the call it is serving and no more: extents and offsets, no seed, clock, expected value or later call.
3. Whatever an entry raises, exits or prints becomes at most one FAILED frame with bounded text.

Descriptors: 3 control channel (SOCK_SEQPACKET), 4 inputs (read-only by seal), 5 outputs.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

import torch

from qualify.arm_plan import ArmPlan, decode_plan
from qualify.bundle_loader import BundleLoader, BundleLoadError
from qualify.memory import ArmMemory
from qualify.protocol import (
    FRAME_BYTES,
    TEXT_BYTES,
    Call,
    Failure,
    FrameKind,
    Reply,
    decode_call,
    encode_reply,
)
from qualify.slots.base import DTYPES, STOCK_ROOT, Slot
from qualify.slots.registry import find_slot

Entry = Callable[..., Any]

# Some of torch's first calls look at the processor's description, which a sandbox hides. They are made here, when this
# module is loaded by the fork server, so that every arm inherits the answer.
for _dtype in DTYPES.values():
    _probe = torch.ones(8, 8, dtype=_dtype)
    torch.mm(torch.exp(_probe), _probe)
del _dtype, _probe

_RESERVE_BLOCK, _RESERVE_BLOCKS = 31 << 20, 2
_MADV_HUGEPAGE = 14
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of the C library's mallopt(3)


def main(fds: tuple[int, ...], argument: bytes) -> None:
    """Serve calls until the referee hangs up or kills the process."""
    control, inputs, outputs = fds
    plan = decode_plan(argument)
    hello = bytes.fromhex(plan.hello)
    _settle_heap()
    torch.set_num_threads(plan.threads)
    torch.set_grad_enabled(False)
    slot = find_slot(plan.slot)
    memory = ArmMemory(inputs, outputs)
    try:
        entries = _load(plan, slot)
    except BundleLoadError as error:
        failure = Failure.ENTRY_MISSING if error.missing else Failure.IMPORT_FAILED
        _send(control, Reply(FrameKind.FAILED, hello, failure, _describe(error)))
        return
    except BaseException as error:  # noqa: BLE001 - a module may raise anything, also SystemExit
        _send(control, Reply(FrameKind.FAILED, hello, _classify(error, Failure.IMPORT_FAILED), _describe(error)))
        return
    _send(control, Reply(FrameKind.READY, hello))
    while frame := os.read(control, FRAME_BYTES):
        call = decode_call(frame)
        _send(control, _serve(call, entries, slot, DTYPES[plan.dtype], memory))


def _settle_heap() -> None:
    """Bring the C allocator into the state of a process that has served for long, the same for every role.

    Otherwise a call pays, by luck of the heap's layout, for fresh pages or for temporaries that lie badly to each
    other, and that luck goes with the code that was loaded, so equal code in two bundles would differ by percents.
    """
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the largest value the allocator takes
    libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)  # what is freed is kept
    # Holes for small objects of every size, so that they never come to lie between large ones.
    sizes = [*range(24, 1040, 16), *range(1280, 20480, 256)] * 8
    holes = []
    for size in sizes:
        holes.append(libc.malloc(size))
        libc.malloc(24)  # keeps neighbouring holes apart
    for hole in holes:
        libc.free(hole)
    libc.malloc(64 * int.from_bytes(os.urandom(2), "little"))  # where large objects begin differs from arm to arm
    blocks = [libc.malloc(_RESERVE_BLOCK) for _ in range(_RESERVE_BLOCKS)]
    for block in blocks:
        libc.madvise(-(-block // 4096) * 4096, _RESERVE_BLOCK - 4096, _MADV_HUGEPAGE)
        ctypes.memset(block, 0, _RESERVE_BLOCK)
    for block in blocks:
        libc.free(block)


def _load(plan: ArmPlan, slot: Slot) -> list[Entry]:
    loaders: dict[str, BundleLoader] = {}
    entries: list[Entry] = []
    for implementation in plan.implementations:
        root, source, entry = implementation.root, implementation.source, implementation.entry
        if implementation.is_stock:
            root, (source, entry) = str(STOCK_ROOT), slot.stock
        if root not in loaders:
            loaders[root] = BundleLoader(root, f"cacheon_bundle_{len(loaders)}")
        entries.append(loaders[root].entry(source, entry))
    return entries


def _serve(call: Call, entries: list[Entry], slot: Slot, dtype: torch.dtype, memory: ArmMemory) -> Reply:
    shapes = slot.shapes(dict(zip(slot.dimensions, call.extents, strict=True)))
    offsets = iter(call.offsets)
    scalars = slot.scalars()
    arguments: list[torch.Tensor | float] = []
    for argument in slot.arguments:
        if argument.role == "scalar":
            arguments.append(scalars[argument.name])
        elif argument.role == "input":
            arguments.append(memory.input(next(offsets), shapes[argument.name], dtype))
        else:
            arguments.append(memory.output(next(offsets), shapes[argument.name], dtype))
    try:
        entries[call.implementation](*arguments)
    except BaseException as error:  # noqa: BLE001 - an entry may raise anything, also SystemExit
        return Reply(FrameKind.FAILED, call.nonce, _classify(error, Failure.EXCEPTION), _describe(error))
    return Reply(FrameKind.DONE, call.nonce)


def _classify(error: BaseException, otherwise: Failure) -> Failure:
    out_of_memory = isinstance(error, MemoryError) or "can't allocate memory" in _describe(error)
    return Failure.OUT_OF_MEMORY if out_of_memory else otherwise


def _describe(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:TEXT_BYTES]
    except BaseException:  # noqa: BLE001 - `__str__` may be hostile too
        return "an exception that cannot be described"


def _send(control: int, reply: Reply) -> None:
    os.write(control, encode_reply(reply))
