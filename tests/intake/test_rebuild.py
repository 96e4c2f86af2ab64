"""`intake/rebuild.py`, `intake/json_lines.py`: builders a bundle selects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.target_catalog import load_catalog
from intake.json_lines import JsonLines
from intake.rebuild import REBUILD, Buildable, RebuildPlan, check_agreement, load_rebuild, read_rebuild
from intake.refusal import Findings
from tests.intake.support import golden

CATALOG = load_catalog()
VECTORS = [row for row in golden("rebuild_vectors") if "rebuild_json" in row]  # links are refused by unpacking


def read(text: str | bytes) -> tuple[RebuildPlan | None, list[str]]:
    """Return the plan and the codes of the findings with their lines."""
    findings = Findings()
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    plan = read_rebuild(data, findings, CATALOG.builders)
    return plan, [f"{item.code} {item.location}" for item in findings.documents()]


def step(path: str, kind: str = "repo_python") -> dict[str, str]:
    """Return one step."""
    return {"type": kind, "path": path}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_golden_rows(vector: dict[str, Any]) -> None:
    """Recorded documents give the recorded steps in execution order, or are refused."""
    plan, findings = read(vector["rebuild_json"])
    assert (plan is not None) is vector["accept"] is (not findings)
    if plan is not None:
        assert [[item.builder_id, item.path] for item in plan.steps] == vector["steps"]


@pytest.mark.parametrize(
    "path",
    [
        "./build_cuda_ext.py",
        "cacheon//patchers/build_cuda_ext.py",
        "cacheon/./patchers/build_cuda_ext.py",
        "cacheon/patchers/build_cuda_ext.py/",
        "cacheon/patchers/cacheon/patchers/build_cuda_ext.py",
        "patchers/build_cuda_ext.py",
        " build_cuda_ext.py",
        "build_cuda_ext.py\n",
        "build_cuda_ext",
        "build_cuda_ext.py.py",
        "BUILD_CUDA_EXT.py",
        "cacheon\\patchers\\build_cuda_ext.py",
        "build_cuda_ext.py\0",
        "",
        ".py",
    ],
)
def test_other_spellings_of_a_builder_are_refused(path: str) -> None:
    """Paths are compared, not tidied."""
    plan, findings = read(json.dumps({"steps": [step(path)]}))
    assert plan is None
    assert findings == [f"REBUILD_UNKNOWN_BUILDER {REBUILD}:1"]


def test_both_spellings_of_one_builder_are_one_builder() -> None:
    """A builder cannot be selected twice under its two names."""
    steps = [step("build_cuda_ext.py"), step("cacheon/patchers/build_cuda_ext.py")]
    plan, findings = read(json.dumps({"steps": steps}))
    assert plan is None
    assert findings == [f"REBUILD_DUPLICATE {REBUILD}:1"]


def test_every_wrong_step_is_named_with_its_line() -> None:
    """All findings of a document are reported at once."""
    text = """{
  "steps": [
    {"type": "shell",
     "path": "x"},
    {"type": "repo_python",
     "path": "nothing.py"},
    7
  ]
}"""
    assert read(text)[1] == [
        f"REBUILD_STEP {REBUILD}:3",
        f"REBUILD_UNKNOWN_BUILDER {REBUILD}:6",
        f"REBUILD_STEP {REBUILD}:7",
    ]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b'{\n "steps": [],\n "steps": []}', 3),
        (b'{\n "steps": [}', 2),
        (b'{"steps":\n [1.5]}', None),
        (b'\n\n{"\xff": 1}', 3),
        (b'\xef\xbb\xbf{"steps": []}', 1),
        (b'{\n "steps": [],\n "x": 1}', 3),
        (b"[]", 1),
        (b"[" * 100_000, None),
        (b" " * 2_000_000, None),
    ],
)
def test_documents_of_another_form_are_refused_with_a_line(data: bytes, line: int | None) -> None:
    """What is wrong with the document as a whole has a place too, where there is one."""
    plan, findings = read(data)
    assert plan is None
    assert findings == [f"REBUILD_MALFORMED {REBUILD}" + (f":{line}" if line else "")]


def test_a_bundle_without_the_file_builds_nothing() -> None:
    """No rebuild.json is the empty plan, and so is an empty list."""
    findings = Findings()
    assert load_rebuild({}, findings, CATALOG) == load_rebuild({REBUILD: b'{"steps": []}'}, findings, CATALOG)
    assert not findings


def test_features_are_those_of_the_selected_builders() -> None:
    """Features have the names that the catalog allows."""
    plan, _ = read(json.dumps({"steps": [step("build_cute_cubin.py"), step("apply_dep_patch.py")]}))
    assert plan is not None
    assert plan.features == ("rebuild:apply_dep_patch", "rebuild:build_cute_cubin")


@pytest.mark.parametrize(
    ("steps", "what", "count"),
    [
        ([], Buildable(), 0),
        (["apply_dep_patch"], Buildable(patches=1), 0),
        ([], Buildable(patches=1), 1),
        (["apply_dep_patch"], Buildable(), 1),
        (["build_cuda_ext"], Buildable(units=1, cuda=2), 0),
        ([], Buildable(units=1, cuda=1), 1),
        (["build_cuda_ext"], Buildable(cuda=1), 1),
        (["build_cuda_ext"], Buildable(), 1),
        (["build_cute_cubin"], Buildable(exports=("build_cute_cubin",)), 0),
        (["build_cute_cubin"], Buildable(), 1),
        ([], Buildable(exports=("build_cute_cubin",)), 1),
        (["apply_dep_patch", "build_cuda_ext", "build_cute_cubin"], Buildable(), 3),
    ],
)
def test_builders_and_work_belong_together(steps: list[str], what: Buildable, count: int) -> None:
    """A builder without work, and work without its builder, are refused."""
    plan, _ = read(json.dumps({"steps": [step(f"{name}.py") for name in steps]}))
    findings = Findings()
    assert plan is not None
    check_agreement(plan, what, findings, CATALOG)
    assert [item.code for item in findings.documents()] == ["REBUILD_DISAGREES"] * count


@given(st.one_of(st.binary(max_size=200), st.text(alphabet='{}[]:,"\\ \nstepsyath1.\ud800', max_size=80)))
def test_only_findings_come_out(data: str | bytes) -> None:
    """Whatever the bytes, the answer is a plan or at least one finding."""
    plan, findings = read(data)
    assert (plan is None) is bool(findings)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)


@given(JSON)
def test_json_lines_point_at_values(value: Any) -> None:
    """In an indented document every container element is found on its own line."""
    text = json.dumps(value, indent=1, ensure_ascii=True)
    lines, places = text.split("\n"), JsonLines(text)
    assert places.duplicate == 0
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        shown = lines[places.line(key) - 1].strip()
        head = json.dumps(item, indent=1).split("\n")[0]
        assert shown.removeprefix(f"{json.dumps(key)}: ").removesuffix(",") == head
