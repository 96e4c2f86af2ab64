"""`rebuild.json` -> which registered builders a bundle selects. Data, not a command: nothing here runs anything.

Invariants
1. The document is exactly `{"steps": [{"type", "path"}, ...]}`: strict JSON, no other key at either level.
2. A step names a builder of the catalog, either by its file name or below `cacheon/patchers/`, in that spelling and no
   other: `./x`, doubled slashes and `..` are refused, not tidied. Each builder stands once.
3. Order in the file never decides: steps run in the catalog's order. The identity of a step is the builder's id, never
   the bytes of a validator's source, so a bundle is the same bundle under every release.
4. Builders are selected exactly when there is something for them to build.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from config.canonical import CanonicalJsonError, read_json
from config.errors import IntakeError, SourceLocation
from config.limits import INTAKE, IntakeLimits
from config.target_catalog import Builder, TargetCatalog
from intake.json_lines import JsonLines, Step
from intake.refusal import Findings, clip
from intake.suggest import nearest

REBUILD = "rebuild.json"
STEP_TYPE = "repo_python"
_FOLDER = "cacheon/patchers/"


class RebuildStep(msgspec.Struct, frozen=True):
    """One selected builder: its stable id and the canonical path of its step."""

    builder_id: str
    name: str

    @property
    def path(self) -> str:
        """The canonical spelling of the step's path."""
        return f"{_FOLDER}{self.name}.py"


class RebuildPlan(msgspec.Struct, frozen=True):
    """The selected builders in execution order; empty when there is no rebuild.json."""

    steps: tuple[RebuildStep, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """The observed features, sorted."""
        return tuple(sorted(f"rebuild:{step.name}" for step in self.steps))

    def selects(self, name: str) -> bool:
        """Say whether the builder called `name` is selected."""
        return any(step.name == name for step in self.steps)


class Buildable(NamedTuple):
    """What a bundle gives builders to work on, for `check_agreement`. `patches` are dependency patches, `units` are
    `.cu` files, `cuda` are all declared CUDA files, `exports` holds the builder name of each direct-artifact export."""

    patches: int = 0
    units: int = 0
    cuda: int = 0
    exports: tuple[str, ...] = ()


def load_rebuild(
    files: Mapping[str, bytes], findings: Findings, catalog: TargetCatalog, limits: IntakeLimits = INTAKE
) -> RebuildPlan | None:
    """Return the plan of a file table, the empty plan without rebuild.json, or None with what is wrong in `findings`.

    Codes: REBUILD_MALFORMED, REBUILD_STEP, REBUILD_UNKNOWN_BUILDER, REBUILD_DUPLICATE.
    """
    data = files.get(REBUILD)
    return RebuildPlan() if data is None else read_rebuild(bytes(data), findings, catalog.builders, limits)


def read_rebuild(
    data: bytes, findings: Findings, builders: tuple[Builder, ...], limits: IntakeLimits = INTAKE
) -> RebuildPlan | None:
    """Parse the bytes of one rebuild.json; see `load_rebuild`."""
    try:
        value, lines = _document(data, limits)
        rows = _rows(value, lines, limits)
    except IntakeError as error:
        findings.take(error)
        return None
    chosen: dict[str, int] = {}
    clean = True
    for index, row in enumerate(rows):
        try:
            name = _builder_name(row, index, builders, lines)
            if name in chosen:
                message = f"builder {name} is selected twice, first at line {chosen[name]}."
                raise _refusal("REBUILD_DUPLICATE", message, lines.line("steps", index), "Keep one of the two steps.")
            chosen[name] = lines.line("steps", index)
        except IntakeError as error:
            findings.take(error)
            clean = False
    if not clean:
        return None
    return RebuildPlan(tuple(RebuildStep(item.id, item.name) for item in builders if item.name in chosen))


def check_agreement(plan: RebuildPlan, what: Buildable, findings: Findings, catalog: TargetCatalog) -> None:
    """Refuse builders without work, and work without its builder (REBUILD_DISAGREES)."""
    patcher = plan.selects("apply_dep_patch")
    compiler = plan.selects("build_cuda_ext")
    if what.patches and not patcher:
        _disagree(findings, "dependency patches are declared", "apply_dep_patch", missing=True)
    if patcher and not what.patches:
        _disagree(findings, "no dependency patch is declared", "apply_dep_patch", missing=False)
    if what.cuda and not compiler:
        _disagree(findings, "CUDA sources are declared", "build_cuda_ext", missing=True)
    if compiler and not what.units:
        _disagree(findings, "no .cu file is declared", "build_cuda_ext", missing=False)
    for name in sorted({*what.exports} - {step.name for step in plan.steps}):
        _disagree(findings, "direct-artifact exports are declared", name, missing=True)
    for name in sorted({provider.builder for provider in catalog.providers} - {*what.exports}):
        if plan.selects(name):
            _disagree(findings, "no direct-artifact export is declared", name, missing=False)


def _disagree(findings: Findings, fact: str, name: str, *, missing: bool) -> None:
    message = f"{fact}, {'but the builder' if missing else 'yet the builder'} {name} is {'not ' * missing}selected."
    hint = f'Add {{"type": "{STEP_TYPE}", "path": "{name}.py"}} to rebuild.json.' if missing else "Remove that step."
    findings.add("REBUILD_DISAGREES", message, hint=hint, path=REBUILD)


def _document(data: bytes, limits: IntakeLimits) -> tuple[Any, JsonLines]:
    if len(data) > limits.metadata_bytes:
        raise _refusal("REBUILD_MALFORMED", f"the file is larger than {limits.metadata_bytes} bytes.", 0)
    try:
        value = read_json(data)
    except CanonicalJsonError as error:
        cause = error.__cause__
        line = getattr(cause, "lineno", 0) or JsonLines(data.decode("utf-8", "replace")).duplicate
        if isinstance(cause, UnicodeDecodeError):
            line = data.count(b"\n", 0, cause.start) + 1
        raise _refusal("REBUILD_MALFORMED", f"the file is {clip(error.message, 160)}.", line) from None
    return value, JsonLines(data.decode("utf-8"))


def _rows(value: Any, lines: JsonLines, limits: IntakeLimits) -> list[Any]:
    if not isinstance(value, dict) or set(value) != {"steps"} or not isinstance(value["steps"], list):
        extra = sorted(set(value) - {"steps"}) if isinstance(value, dict) else []
        line = lines.line(extra[0]) if extra else lines.line("steps")
        raise _refusal("REBUILD_MALFORMED", 'the document is not exactly {"steps": [...]}.', line)
    rows: list[Any] = value["steps"]
    if len(rows) > limits.list_entries:
        raise _refusal("REBUILD_MALFORMED", f"the list has {len(rows)} steps.", lines.line("steps"))
    return rows


def _builder_name(row: Any, index: int, builders: tuple[Builder, ...], lines: JsonLines) -> str:
    def refuse(code: str, message: str, *key: Step, hint: str = "") -> IntakeError:
        return _refusal(code, message, lines.line("steps", index, *key), hint)

    if not isinstance(row, dict) or set(row) != {"type", "path"}:
        raise refuse("REBUILD_STEP", 'a step is not exactly {"type", "path"}.')
    kind, path = row["type"], row["path"]
    if kind == "bundle_python":
        hint = "Select a registered builder; a bundle brings no build code of its own."
        raise refuse("REBUILD_STEP", "bundle_python would run the bundle's own code at build time.", "type", hint=hint)
    if kind != STEP_TYPE:
        shown = clip(kind) if isinstance(kind, str) else "of another kind"
        raise refuse("REBUILD_STEP", f"the step type is {shown}.", "type", hint=f'Write "type": "{STEP_TYPE}".')
    if not isinstance(path, str):
        raise refuse("REBUILD_STEP", "the path is not text.", "path")
    known = [item.name for item in builders]
    name = path.removeprefix(_FOLDER).removesuffix(".py")
    if name not in known or path not in (f"{name}.py", f"{_FOLDER}{name}.py"):
        hint = nearest(path, [f"{item}.py" for item in known]) or f"Use one of: {', '.join(f'{n}.py' for n in known)}."
        raise refuse("REBUILD_UNKNOWN_BUILDER", f"{clip(path)} names no registered builder.", "path", hint=hint)
    return name


def _refusal(code: str, message: str, line: int, hint: str = "") -> IntakeError:
    return IntakeError(code, message, hint=hint, location=SourceLocation(REBUILD, line))
