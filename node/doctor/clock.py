"""Clocks: whether this machine knows the time, and what reading a clock costs.

Invariants
1. The kernel itself is asked whether something keeps its clock; no daemon is looked for by name.
2. A clock that is off makes evidence and block ages wrong, not verdicts: it warns.
"""

from __future__ import annotations

import ctypes
import struct
import time
from pathlib import Path

from node.doctor.check import Finding, Subject, passed, skipped, warned

TIME_ERROR = 5
STA_UNSYNC = 0x0040
ERROR_LIMIT_US = 1_000_000
COST_LIMIT_NS = 1_000
_TIMEX_BYTES = 512  # more than any struct timex
_TIMEX_HEAD = "=I4x4qi4x"  # modes, offset, freq, maxerror, esterror, status
_SLOW_SOURCES = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")
_FOLDER = Path("/sys/devices/system/clocksource/clocksource0")


def judge_sync(state: int, status: int, max_error_us: int) -> Finding:
    """Judge what adjtimex(2) said: its return value (-1 = refused), the status bits and the error bound."""
    name = "clock.sync"
    if state < 0:
        return skipped(name, "the kernel does not say whether its clock is kept")
    if state == TIME_ERROR or status & STA_UNSYNC:
        return warned(
            name, "the kernel says that nothing keeps its clock",
            "run a time service (chrony or systemd-timesyncd); on a virtual machine, on its host as well",
        )
    if max_error_us > ERROR_LIMIT_US:
        return warned(
            name, f"kept, but only to within {max_error_us / 1e6:.1f} s", "check the time service and its servers"
        )
    return passed(name, f"kept, within {max_error_us / 1000:.0f} ms")


def judge_source(source: str, offered: str, read_ns: float) -> Finding:
    """Judge the kernel's clock source and what one reading costs; the cost is part of every timed call."""
    name, seen = "clock.source", f"{source or 'unknown'}, {read_ns:.0f} ns to read"
    if source in _SLOW_SOURCES or read_ns > COST_LIMIT_NS:
        others = ", ".join(one for one in offered.split() if one != source) or "none other"
        return warned(
            name, f"{seen}; offered: {others}", "boot with clocksource=tsc, or use a host whose clock can be trusted"
        )
    return passed(name, seen)


def look_clock(_: Subject) -> tuple[Finding, ...]:
    """Ask the kernel."""
    source, offered = (_text(f"{which}_clocksource") for which in ("current", "available"))
    return judge_sync(*_adjtimex()), judge_source(source, offered, _read_cost_ns())


def _adjtimex() -> tuple[int, int, int]:
    """Return adjtimex(2)'s return value, status bits and error bound in microseconds, without adjusting anything."""
    record = ctypes.create_string_buffer(_TIMEX_BYTES)
    state = int(ctypes.CDLL(None, use_errno=True).adjtimex(record))
    _, _, _, max_error, _, status = struct.unpack_from(_TIMEX_HEAD, record.raw)
    return state, status, max_error


def _read_cost_ns() -> float:
    best = float("inf")
    for _ in range(20):
        begun = time.perf_counter_ns()
        for _ in range(100):
            time.perf_counter_ns()
        best = min(best, (time.perf_counter_ns() - begun) / 101)
    return best


def _text(name: str) -> str:
    try:
        return (_FOLDER / name).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
