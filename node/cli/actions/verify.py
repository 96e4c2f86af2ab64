"""`cacheon verify`: the validator's screens on a local bundle, with every case a kernel author can act on."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from config.errors import ExitCode, HostError
from node.cli.actions.examination import Asked, CaseRow, Examination, misfit, spell
from node.cli.bench_stand import NOTICE, Candidate, Choice, Stand, ending_in_order, open_stand
from node.cli.output import Output, facts
from node.cli.progress import ScreenProgress
from node.cli.screen_table import exit_code_of, show_screens
from node.cli.warm_referee import WarmReferee
from qualify.screens.base import ScreenReceipt

if TYPE_CHECKING:
    from rich.console import Console

ATTEMPT_ID = "verify"  # the same for every run, so that a seed alone repeats one
_EXTENT = re.compile("[0-9]{1,9}")
_CUDA, _DRIVER = re.compile("cuda(:[0-9]{1,3})?"), Path("/proc/driver/nvidia/version")
_SHOWN = 60  # characters of a wrong word that a message repeats


@dataclass(frozen=True)
class Cases:
    """What the command line says about the calls to make; None means: as the arena and the bundle have it."""

    slot: str | None = None
    dtype: str | None = None
    device: str = "cpu"
    seed: str | None = None
    shapes: str | None = None
    speed: bool = False


class Verified(msgspec.Struct, frozen=True):
    """The result as `--json` shows it; what is empty was not reached."""

    passed: bool
    content_hash: str
    target_id: str
    slot: str
    dtype: str
    arena_id: str
    arena_digest: str
    incumbent_digest: str
    seed: str
    screens: tuple[ScreenReceipt, ...]
    cases: tuple[CaseRow, ...]
    notice: str


def run(bundle: str, choice: Choice, cases: Cases, *, as_json: bool) -> int:
    """Verify `bundle`. Returns 0, 3 when it is rejected, 7 when this machine could not tell.

    Raises `ConfigurationError` for options that do not fit and `HostError` for a machine that is not ready.
    """
    require_device(cases.device)
    output, seed = Output("verify", as_json=as_json), cases.seed or secrets.token_hex(8)
    shapes = parse_shapes(cases.shapes) if cases.shapes else ()
    progress = ScreenProgress(silent=as_json)
    with ending_in_order(), WarmReferee() as referee, open_stand(choice) as stand:
        candidate = stand.admit(bundle, ATTEMPT_ID, progress)
        asked = _ask(stand, candidate, cases, seed, shapes)
        verified = _verified(candidate, None if asked is None else referee.examine(asked, progress), seed)
    progress.clear()
    output.result(verified, lambda console: _show(console, verified))
    output.note(f"note: {NOTICE}")
    if verified.seed:
        output.note(f"the same shapes and inputs again: --seed {verified.seed}")
    return exit_code_of(verified.screens)


def require_device(name: str) -> None:
    """Accept the devices that this release runs a bundle on: "cpu".

    Raises `ConfigurationError` (VERIFY_CHOICE_INVALID) for a word that names no device, and `HostError`
    (DEVICE_UNAVAILABLE) for a CUDA device, which says what this machine has and what is checked without it.
    """
    if name == "cpu":
        return
    if _CUDA.fullmatch(name) is None:
        raise misfit(f"there is no device called {_shortened(name)!r}; a device is cpu, cuda or cuda:N")
    where = "this release runs no bundle on a device"
    if not _DRIVER.exists():
        where = f"this machine has no CUDA device: no NVIDIA driver is loaded ({_DRIVER} is missing)"
    raise HostError(
        "DEVICE_UNAVAILABLE",
        f"{where}, so nothing can be asked on {name!r}",
        hint="use --device cpu: it asks every shape and edge of a kernel that runs there; what needs a device (capture "
        "in a graph, device code, its speed) is left to a validator that has one",
    )


def parse_shapes(text: str) -> tuple[dict[str, int], ...]:
    """Read `name=extent,name=extent;...`. Raises `ConfigurationError` (VERIFY_CHOICE_INVALID)."""
    shapes: list[dict[str, int]] = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        shape: dict[str, int] = {}
        for pair in part.split(","):
            name, _, extent = (word.strip() for word in pair.partition("="))
            if _EXTENT.fullmatch(extent) is None or name in shape:
                raise misfit(f"{_shortened(pair.strip())!r} is no dimension with a whole number")
            shape[name] = int(extent)
        shapes.append(shape)
    if not shapes:
        raise misfit("--shapes names no shape")
    return tuple(shapes)


def _ask(
    stand: Stand, candidate: Candidate, cases: Cases, seed: str, shapes: tuple[dict[str, int], ...]
) -> Asked | None:
    if candidate.request is None:
        return None
    return Asked(candidate.request, str(stand.store), seed, cases.slot, cases.dtype, shapes, cases.speed)


def _verified(candidate: Candidate, found: Examination | None, seed: str) -> Verified:
    if found is None:
        return Verified(False, "", "", "", "", "", "", "", "", candidate.receipts, (), NOTICE)
    receipts = candidate.receipts + found.screens
    return Verified(
        passed=exit_code_of(receipts) == ExitCode.OK,
        content_hash=found.content_hash,
        target_id=found.target_id,
        slot=found.slot,
        dtype=found.dtype,
        arena_id=found.arena_id,
        arena_digest=found.arena_digest,
        incumbent_digest=found.incumbent_digest,
        seed=seed,
        screens=receipts,
        cases=found.cases,
        notice=NOTICE,
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _show(console: Console, verified: Verified) -> None:
    from node.cli.output import table

    if verified.slot:
        arena = f"{verified.arena_id} ({verified.dtype})"
        facts(console, [("bundle", verified.content_hash), ("slot", verified.slot), ("arena", arena)])
    if verified.cases:
        rows = [
            (spell(case.shape), case.inputs, case.code or f"{case.worst_ppm / 10_000:.0f} % of its bound")
            for case in verified.cases
        ]
        console.print(table(("shape", "inputs", "worst error"), rows))
        for case in verified.cases:
            if case.detail:
                console.print(f"{case.code}: {case.detail}", markup=False, soft_wrap=True)
    show_screens(console, verified.screens)
