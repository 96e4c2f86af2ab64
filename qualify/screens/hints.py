"""What to do about a code of the screens that run the bundle: one sentence per code."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_OURS = "nothing is held against the bundle; run it again, on a quieter machine if you can"
_HINTS: Mapping[str, str] = MappingProxyType(
    {
        "ARM_CRASHED": "look for writes into inputs or past a buffer; inputs are mapped read-only",
        "ARM_PROTOCOL": "leave descriptors and processes alone; compute the outputs and return",
        "ARM_RAISED": "call the entry with the slot's arguments at this shape and mend what it raises",
        "BASELINE_FAILED": _OURS,
        "CALL_DEADLINE": "keep compilation and loops out of the call, or make them shorter",
        "CANDIDATE_TOO_SLOW": "make calls shorter: what is far slower than the incumbent uses up the attempt's time",
        "ENTRY_SIGNATURE": "take the slot's arguments by position, outputs included; `cacheon slots SLOT` shows them",
        "FORBIDDEN_CALL": "use no network, no processes and no devices; only computing is allowed",
        "INPUT_MUTATED": "write into the outputs only",
        "LATE_WRITE": "finish all work before the entry returns; leave no thread behind",
        "LOAD_FAILED": "import declared files and the allowed libraries only, and define the entry the manifest names",
        "MACHINE_UNFIT": _OURS,
        "NEVER_ROUTED": "widen dtypes or metadata until they hold a shape of the workload; see `cacheon targets`",
        "NOT_EXECUTED": "write the result into the output argument; the return value is ignored",
        "NOT_FASTER": "measure against the incumbent at the workload's shapes; only a gain above the margin counts",
        "OUT_OF_BOUNDS_WRITE": "stay inside the output's shape and strides",
        "PREPARE_FAILED": "call `prepare` with the slot's weights and mend what it raises",
        "RESOURCE_LIMIT": "use less memory, fewer threads and less output",
        "WRONG_OUTPUT": "compute in float32 and round once; compare with the slot's reference at this shape",
    }
)


def hint_for(code: str) -> str:
    """Return the hint for `code`; empty when there is nothing to be done."""
    return _HINTS.get(code, "")
