"""An arena: one frozen document that says what is measured, how, and what counts as faster.

Invariants
1. An arena is identified by the digest of its canonical JSON; changing any field makes another arena.
2. Launch counts are even, because launches come in pairs with exchanged roles. A launch has a block for every shape of
   a target, so that no shape goes unmeasured.
3. All quantities are integers in the unit their name carries (ppm, ms, bytes, seconds).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import msgspec
import tomli

from config.canonical import domain_digest
from config.errors import ConfigurationError, SourceLocation

ARENA_SCHEMA = "cacheon.arena.v1"
CPU_TIMING_METHOD = "outside-monotonic-per-call"
RANKS_MAX = 8  # of one group
ARENA_BYTES = 1024 * 1024  # of one document
FIRST_SPEED_POLICY = "cacheon.speed.v1"  # of arenas from before they named one
SPEED_POLICIES = frozenset({  # the names; what they say is `scoring.policy`'s
    FIRST_SPEED_POLICY,
    "cacheon.speed.v2",
    "cacheon.speed.v2-exchanged",
})


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one target is measured on: a dtype, a list of shapes (dimension name -> extent), and for a collective the
    number of ranks. An atomic target has `members` instead: it is measured on the workloads that they have here.
    A `profile` is the model whose use of the slot is measured, where that differs from the slot itself.
    The digest of an arena that has none of these does not know the fields.
    """

    target: str
    dtype: str = ""
    shapes: tuple[dict[str, int], ...] = ()
    world_size: int = 1
    members: tuple[str, ...] = ()
    profile: str = ""


class Arena(msgspec.Struct, frozen=True, dict=True, forbid_unknown_fields=True, omit_defaults=True):
    """The frozen measuring document. Ratios are ppm with 1_000_000 meaning equal speed.

    The digest of an arena that names no policy and no peaks does not know the fields.
    """

    schema: str
    id: str
    kind: str
    timing_method: str
    alpha_ppm: int  # probability, in ppm, that code no faster than the margin passes one attempt
    margin_ppm: int  # gain over the incumbent, in ppm, that the lower bound must clear
    launches_min: int
    launches_max: int
    blocks_per_launch: int  # measured blocks of each role in one launch
    calls_per_block: int
    warmup_calls: int  # checked but untimed calls of each role at the start of a launch
    call_deadline_ms: int
    attempt_budget_seconds: int
    arm_memory_bytes: int
    arm_threads: int
    implausible_speedup_ppm: int  # a lower bound at or above this goes to review instead of a crown
    workloads: tuple[Workload, ...]
    speed_policy: str = FIRST_SPEED_POLICY  # id of the registered constants that verdicts follow
    peak_bytes_per_second: int = 0  # that no process of the machine can exceed, whatever it does; 0 = no floor
    peak_operations_per_second: int = 0  # likewise, of the fastest arithmetic there is

    @functools.cached_property
    def digest(self) -> str:
        """Lower-hex identity of this document."""
        return domain_digest("cacheon.arena", msgspec.to_builtins(self))

    def workload(self, target_id: str) -> Workload | None:
        """Return the workload registered for `target_id`, or None when this arena does not judge it."""
        return next((load for load in self.workloads if load.target == target_id), None)

    def parts(self, target_id: str) -> tuple[Workload, ...]:
        """Return the workloads that an attempt on `target_id` runs, in order: one for each member; () for none."""
        load = self.workload(target_id)
        if load is None or not load.members:
            return () if load is None else (load,)
        return tuple(part for member in load.members if (part := self.workload(member)) is not None)

    def measured(self, target_id: str, slots: Sequence[str] = ()) -> tuple[Workload, ...]:
        """Return the workloads of an attempt that measures `slots`, in order; without `slots` those of `parts`.

        Empty when this arena does not judge the target, has no workload of its own for one of the slots, or not enough
        blocks in a launch for all of them.
        """
        parts = self.parts(target_id)
        if not slots or not parts:
            return parts
        loads = [load for slot in slots if (load := self.workload(slot)) is not None and not load.members]
        return tuple(loads) if len(loads) == len(slots) and _cases(loads) <= self.blocks_per_launch else ()


def load_arena(name_or_path: str) -> Arena:
    """Load an arena by id from `config/arenas/` or by path (anything ending in `.toml`).

    Raises `ConfigurationError`: ARENA_NOT_FOUND, ARENA_INVALID.
    """
    if name_or_path.endswith(".toml"):
        path = Path(name_or_path)
        try:
            with path.open("rb") as stream:
                data = stream.read(ARENA_BYTES + 1)
        except OSError as error:
            raise ConfigurationError(
                "ARENA_NOT_FOUND", f"arena file {name_or_path} cannot be read: {error.strerror}",
                hint="give the id of a built-in arena or the path of a readable .toml file",
            ) from error
        return parse_arena(data, name_or_path)
    source = resources.files("config") / "arenas" / f"{name_or_path}.toml"
    if "/" in name_or_path or not source.is_file():
        raise ConfigurationError(
            "ARENA_NOT_FOUND", f"there is no arena called {name_or_path!r}",
            hint=f"known arenas: {', '.join(known_arenas())}",
        )
    return parse_arena(source.read_bytes(), f"arenas/{name_or_path}.toml")


def known_arenas() -> list[str]:
    """Return the ids of the built-in arenas, sorted."""
    folder = resources.files("config") / "arenas"
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def parse_arena(data: bytes, source: str) -> Arena:
    """Parse and check one arena document. Raises `ConfigurationError` (ARENA_INVALID)."""
    if len(data) > ARENA_BYTES:
        raise _invalid(f"it has more than {ARENA_BYTES} bytes", source)
    try:
        arena = msgspec.convert(tomli.loads(data.decode("utf-8")), Arena)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:  # of the encoding, of TOML, of a number
        raise _invalid(str(error), source) from error
    for holds, complaint in (
        (arena.schema == ARENA_SCHEMA, f"schema must be {ARENA_SCHEMA!r}"),
        (arena.timing_method == CPU_TIMING_METHOD, f"timing_method must be {CPU_TIMING_METHOD!r}"),
        (0 < arena.alpha_ppm < 500_000, "alpha_ppm must lie between 0 and 500000"),
        (arena.margin_ppm >= 0, "margin_ppm must not be negative"),
        (arena.launches_min % 2 == 0 and arena.launches_max % 2 == 0, "launch counts must be even"),
        (0 < arena.launches_min <= arena.launches_max, "launches_min must be positive and at most launches_max"),
        (min(arena.blocks_per_launch, arena.calls_per_block, arena.arm_threads) > 0, "counts must be positive"),
        (arena.warmup_calls >= 0, "warmup_calls must not be negative"),
        (min(arena.call_deadline_ms, arena.attempt_budget_seconds) > 0, "deadlines must be positive"),
        (arena.speed_policy in SPEED_POLICIES, f"speed_policy must be one of {', '.join(sorted(SPEED_POLICIES))}"),
        (
            min(arena.peak_bytes_per_second, arena.peak_operations_per_second) >= 0,
            "peaks must not be negative",
        ),
        (
            (arena.peak_bytes_per_second > 0) == (arena.peak_operations_per_second > 0),
            "an arena has both peaks or none",
        ),
        (arena.implausible_speedup_ppm > 1_000_000 + arena.margin_ppm, "implausible_speedup_ppm must exceed the goal"),
        (all(load.members or load.shapes for load in arena.workloads), "every workload needs a shape"),
        (
            all(min(shape.values(), default=1) >= 0 for load in arena.workloads for shape in load.shapes),
            "extents must not be negative",
        ),
        (all(load.members or load.dtype for load in arena.workloads), "every workload needs a dtype"),
        (
            all(load == Workload(load.target, members=load.members) for load in arena.workloads if load.members),
            "a workload with members has nothing else",
        ),
        (_members_have_workloads(arena), "every member of an atomic target needs a workload of its own"),
        (
            all(_cases(arena.parts(load.target)) <= arena.blocks_per_launch for load in arena.workloads),
            "a launch needs a block for every shape of a target",
        ),
        (all(1 <= load.world_size <= RANKS_MAX for load in arena.workloads), f"world_size is 1 to {RANKS_MAX}"),
        (len({load.target for load in arena.workloads}) == len(arena.workloads), "a target appears twice"),
    ):
        if not holds:
            raise _invalid(complaint, source)
    return arena


def _cases(loads: Sequence[Workload]) -> int:
    return sum(len(load.shapes) for load in loads)


def _members_have_workloads(arena: Arena) -> bool:
    single = {load.target for load in arena.workloads if not load.members}
    return all(single.issuperset(load.members) for load in arena.workloads)


def _invalid(complaint: str, source: str) -> ConfigurationError:
    return ConfigurationError(
        "ARENA_INVALID", f"arena document is invalid: {complaint}", location=SourceLocation(source)
    )
