"""The arm: a loop inside the sandbox that runs one implementation on the memory it is handed.

Invariants
1. Everything here shares a process with hostile code, so nothing here is trusted and nothing here decides anything.
2. The arm knows the call it is serving and no more: extents and offsets, no seed, clock, expected value or later call.
3. Whatever an entry raises, exits or prints becomes at most one FAILED frame with bounded text.

Descriptors: 3 control channel (SOCK_SEQPACKET), 4 inputs (read-only by seal), 5 outputs, and for slots with a load-time
half 6 weights (read-only by seal). The ranks of a group are one such process each, and have joined before `main`.
"""

from __future__ import annotations

import ctypes
import inspect
import os
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch

from qualify.arm_plan import ENGINE_MOUNT, ArmPlan, Implementation, decode_plan
from qualify.bundle_loader import BundleLoader, BundleLoadError
from qualify.dtypes import DTYPES
from qualify.memory import ArmMemory, touch_pages
from qualify.override import compose
from qualify.protocol import (
    FRAME_BYTES,
    TEXT_BYTES,
    Call,
    Failure,
    FrameKind,
    Reply,
    answer_go,
    decode_call,
    encode_reply,
    is_go,
    nonce_of,
)
from qualify.rank_group import group_of_ranks
from qualify.slots.base import STOCK_ROOT, Argument, Dimensions, Slot
from qualify.slots.registry import find_slot

Entry = Callable[..., Any]

# Some of torch's first calls look at the processor's description, which a sandbox hides. They are made here, when this
# module is loaded by the fork server, so that every arm inherits the answer.
for _dtype in DTYPES.values():
    _probe = torch.ones(8, 8, dtype=_dtype)
    torch.mm(torch.exp(_probe), _probe)
del _dtype, _probe

_STOCK_PACKAGE = "cacheon_stock"
_RESERVE_BLOCK, _RESERVE_BLOCKS = 31 << 20, 2
_MADV_HUGEPAGE = 14
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of the C library's mallopt(3)


def main(fds: tuple[int, ...], argument: bytes) -> None:
    """Serve calls until the referee hangs up or kills the process."""
    control, *files = fds
    plan = decode_plan(argument)
    hello = bytes.fromhex(plan.hello)
    _settle_heap()
    torch.set_num_threads(plan.threads)
    torch.set_grad_enabled(False)
    slot = find_slot(plan.slot)
    memory = ArmMemory(*files)
    try:
        server = _Server(plan, slot, memory)
    except BundleLoadError as error:
        failure = Failure.ENTRY_MISSING if error.missing else Failure.IMPORT_FAILED
        failure = Failure.SIGNATURE if error.uncallable else failure
        _send(control, Reply(FrameKind.FAILED, hello, failure, str(error)))
        return
    except _SignatureError as error:
        _send(control, Reply(FrameKind.FAILED, hello, Failure.SIGNATURE, str(error)))
        return
    except BaseException as error:  # noqa: BLE001 - a module may raise anything, also SystemExit
        _send(control, Reply(FrameKind.FAILED, hello, _classify(error, Failure.IMPORT_FAILED), _describe(error)))
        return
    _send(control, Reply(FrameKind.READY, hello))
    while frame := os.read(control, FRAME_BYTES):
        if is_go(frame):
            try:
                server.entry(*server.arguments)
            except BaseException as error:  # noqa: BLE001 - an entry may raise anything, also SystemExit
                failure = _classify(error, Failure.EXCEPTION)
                _send(control, Reply(FrameKind.FAILED, nonce_of(frame), failure, _describe(error)))
            else:
                os.write(control, answer_go(frame))
        else:
            _send(control, server.serve(decode_call(frame)))


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


class _Server:
    """The loaded implementations, and what their load-time halves returned."""

    def __init__(self, plan: ArmPlan, slot: Slot, memory: ArmMemory) -> None:
        self._slot = slot
        self._dtype = DTYPES[plan.dtype]
        self._memory = memory
        self._prepared: dict[tuple[int, tuple[int, ...]], Any] = {}
        self._loaders: dict[str, BundleLoader] = {}
        self.entry: Entry = _keep  # of the placed call
        self.arguments: list[Any] = []
        self._entries: list[Entry] = []
        self._prepares: list[Entry] = []
        for chosen in plan.implementations:
            implementation = chosen
            if chosen.is_stock:
                implementation = Implementation(str(STOCK_ROOT), *slot.stock, slot.stock_prepare)
            entry, prepare = self._load(implementation)
            source = implementation.source
            _require_signature(entry, f"{source}:{_line_of(entry)}: {implementation.entry}", slot.arguments)
            _require_signature(prepare, f"{source}:{_line_of(prepare)}: {implementation.prepare}", slot.weights)
            self._entries.append(entry)
            self._prepares.append(prepare)

    def _load(self, one: Implementation) -> tuple[Entry, Entry]:
        """Return the serving and the load-time half of an implementation."""
        if one.root not in self._loaders:
            package = _STOCK_PACKAGE if one.root == str(STOCK_ROOT) else os.path.basename(one.root)
            self._loaders[one.root] = BundleLoader(one.root, package)
        loader = self._loaders[one.root]
        if one.override:
            return _compose(self._slot, one, loader)
        entry = loader.entry(one.source, one.entry)
        return entry, loader.entry(one.source, one.prepare) if one.prepare else _keep

    def serve(self, call: Call) -> Reply:
        """Make the next call ready, or run a load-time half."""
        dimensions = dict(zip(self._slot.dimensions, call.extents, strict=True))
        key = (call.implementation, self._slot.weight_key(dimensions))
        if not call.prepare:
            self.entry, self.arguments = self._entries[call.implementation], self._arguments(call, dimensions, key)
            return Reply(FrameKind.DONE, call.nonce)
        try:
            self._prepared[key] = self._prepares[call.implementation](*self._weights(call, dimensions))
        except BaseException as error:  # noqa: BLE001 - a load-time half may raise anything, also SystemExit
            return Reply(FrameKind.FAILED, call.nonce, _classify(error, Failure.EXCEPTION), _describe(error))
        return Reply(FrameKind.DONE, call.nonce)

    def _arguments(self, call: Call, dimensions: Dimensions, key: tuple[int, tuple[int, ...]]) -> list[Any]:
        shapes = self._slot.shapes(dimensions)
        scalars = {**self._slot.scalars(dimensions), **dict(zip(self._slot.free_scalars, call.scalars, strict=True))}
        offsets = iter(call.offsets)
        arguments: list[Any] = []
        for one in self._slot.arguments:
            if one.role == "scalar":
                arguments.append(scalars[one.name])
            elif one.role == "group":
                arguments.append(group_of_ranks())
            elif one.role == "prepared":
                arguments.append(self._prepared.get(key))
            else:
                dtype = one.torch_dtype(self._dtype)
                place = next(offsets)
                if one.role == "input":
                    arguments.append(self._memory.input(place, shapes[one.name], dtype))
                else:
                    arguments.append(self._memory.output(place, shapes[one.name], dtype, one.pad))
        for argument in arguments:
            if isinstance(argument, torch.Tensor):
                touch_pages(argument)  # here and for every role, so that nobody gains by doing it before GO
        return arguments

    def _weights(self, call: Call, dimensions: Dimensions) -> list[Any]:
        shapes = self._slot.shapes(dimensions)
        return [
            self._memory.weight(offset, shapes[one.name], one.torch_dtype(self._dtype))
            for one, offset in zip(self._slot.weights, call.offsets, strict=True)
        ]


def _compose(slot: Slot, one: Implementation, loader: BundleLoader) -> tuple[Entry, Entry]:
    """Return the two halves of a row that fills an override point."""

    reference = loader.entry(one.source, f"{one.entry}_ref")  # what is wrong is said as for every other row
    _require_signature(reference, f"{one.source}:{_line_of(reference)}: {one.entry}_ref", _HOLE)

    def load(name: str) -> Entry | None:
        try:
            return loader.entry(one.source, name)
        except BundleLoadError:
            return None

    return compose(slot.id, one.override, one.entry, load)


class _SignatureError(Exception):
    """An entry cannot be called with the slot's arguments."""


def _require_signature(entry: Entry, name: str, arguments: Sequence[Argument]) -> None:
    """Raise `_SignatureError` when `entry` says that it takes other positional arguments, or does nothing when called.

    `name` is how to call it in words, with its place.
    """
    for is_such, what in _IDLE:
        if is_such(entry) or is_such(getattr(type(entry), "__call__", None)):  # noqa: B004 - the method itself
            raise _SignatureError(f"{name} is {what}: calling it computes nothing, and nobody runs what it returns")
    try:
        signature = inspect.signature(entry, follow_wrapped=False)
    except (TypeError, ValueError):  # it has none, as compiled functions; calling it will tell
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        wanted = ", ".join(argument.name for argument in arguments)
        raise _SignatureError(f"{name}{signature} does not take ({wanted})") from None


_HOLE = (Argument("gate", "input"), Argument("up", "input"))  # what the reference of an override takes
_IDLE = (
    (inspect.iscoroutinefunction, "an async function"),
    (inspect.isasyncgenfunction, "an async generator"),
    (inspect.isgeneratorfunction, "a generator"),
)


def _line_of(entry: Entry) -> int:
    """Return the line on which a function begins, 1 for what does not say."""
    line = getattr(getattr(entry, "__code__", None), "co_firstlineno", 1)
    return line if isinstance(line, int) else 1


def _keep(*weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The load-time half of an implementation that names none: the weights as they are."""
    return weights


def _classify(error: BaseException, otherwise: Failure) -> Failure:
    out_of_memory = isinstance(error, MemoryError) or "can't allocate memory" in _describe(error)
    return Failure.OUT_OF_MEMORY if out_of_memory else otherwise


def _describe(error: BaseException) -> str:
    try:
        return f"{_place(error)}{type(error).__name__}: {error}"[:TEXT_BYTES]
    except BaseException:  # noqa: BLE001 - `__str__` may be hostile too
        return "an exception that cannot be described"


def _place(error: BaseException) -> str:
    """Return "file:line: " of the innermost frame of a bundle, or of what does not parse; "" when there is none."""
    file, line = "", 0
    if isinstance(error, SyntaxError):
        file, line = str(error.filename), error.lineno or 0
    for frame, number in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename.startswith(f"{ENGINE_MOUNT}/"):
            file, line = frame.f_code.co_filename, number
    if file.startswith(f"{ENGINE_MOUNT}/"):
        file = file.removeprefix(f"{ENGINE_MOUNT}/").partition("/")[2]  # below the bundle's folder
    return f"{file}:{line}: " if file else ""


def _send(control: int, reply: Reply) -> None:
    os.write(control, encode_reply(reply))
