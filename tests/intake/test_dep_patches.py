"""`intake/unified_diff.py`, `intake/diff_apply.py`, `intake/dep_patches.py`: changes to dependencies."""

from __future__ import annotations

import difflib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config.errors import IntakeError
from config.limits import INTAKE
from config.target_catalog import Dependency, load_catalog
from intake.dep_patches import DependencyPatch, PatchRow, allows, load_patches, patch_rows
from intake.diff_apply import apply_file
from intake.manifest_fields import Context, Table
from intake.refusal import Findings
from intake.toml_lines import TomlLines
from intake.unified_diff import parse_diff
from tests.intake.source_differences import PATCHES
from tests.intake.support import golden

VECTORS = golden("dep_patch_vectors")
TOOLS = shutil.which("git") is not None and shutil.which("patch") is not None
HEAD = "--- a/d/f.cu\n+++ b/d/f.cu\n"
PLACE = "flashinfer/data/csrc/fused_moe"


def patched(patch: str | bytes, original: bytes | None) -> bytes:
    """Return the result of a patch of one file."""
    (section,) = parse_diff("p.patch", patch.encode() if isinstance(patch, str) else patch)
    return apply_file(section, original, source="p.patch")


def refusal(patch: str | bytes, original: bytes | None = b"1\n2\n3\n") -> IntakeError:
    """Return the refusal of a patch."""
    with pytest.raises(IntakeError) as caught:
        patched(patch, original)
    return caught.value


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_golden_rows(vector: dict[str, Any]) -> None:
    """Recorded patches parse and apply as recorded, or as the listed differences say."""
    name, data = vector["name"], vector["patch"].encode()
    expected = PATCHES[name][0] if name in PATCHES else vector.get("result")
    accept = vector["accept"] if name not in PATCHES else expected is not None
    if "original" not in vector:
        if not accept:
            with pytest.raises(IntakeError):
                parse_diff("p.patch", data)
            return
        assert [[it.path, it.is_new, len(it.hunks)] for it in parse_diff("p.patch", data)] == vector["files"]
        return
    original = None if vector["original"] is None else vector["original"].encode()
    if not accept:
        refusal(data, original)
        return
    assert patched(data, original) == (expected or "").encode()


@pytest.mark.parametrize(
    ("patch", "code", "line"),
    [
        (b"--- a/d/f.cu\n+++ b/d/\xff\n", "PATCH_SYNTAX", 2),
        ("\ufeff" + HEAD + "@@ -1 +1 @@\n-1\n+x\n", "PATCH_SYNTAX", 1),
        ("", "PATCH_SYNTAX", 0),
        ("\n" * 300_000, "PATCH_SYNTAX", 0),
        ("--- a/d/f.cu\n", "PATCH_SYNTAX", 1),
        ("--- a/d/f.cu\nx\n", "PATCH_SYNTAX", 2),
        ("--- a/d/f.cu\n+++ b/d/g.cu\n@@ -1 +1 @@\n-1\n+x\n", "PATCH_UNSUPPORTED", 2),
        ("--- d/f.cu\n+++ d/f.cu\n@@ -1 +1 @@\n-1\n+x\n", "PATCH_PATH", 2),
        ("--- a/d/f.cu \n+++ b/d/f.cu \n@@ -1 +1 @@\n-1\n+x\n", "PATCH_PATH", 2),
        ("--- a//d\n+++ b//d\n@@ -1 +1 @@\n-1\n+x\n", "PATCH_PATH", 2),
        ("--- a/x\x01\n+++ b/x\x01\n@@ -1 +1 @@\n-1\n+x\n", "PATCH_PATH", 2),
        ("--- /dev/null\n+++ /dev/null\n@@ -0,0 +1 @@\n+x\n", "PATCH_UNSUPPORTED", 2),
        ("--- /dev/null\n+++ b/d/n\n@@ -1 +1 @@\n-1\n+x\n", "PATCH_HUNK", 3),
        ("--- /dev/null\n+++ b/d/n\n@@ -0,0 +1 @@\n+x\n@@ -1,0 +3 @@\n+y\n", "PATCH_HUNK", 5),
        ("diff --git a/d/f.cu b/d/f.cu\ndeleted file mode 100644\n", "PATCH_UNSUPPORTED", 2),
        ("diff --git a/d/l b/d/l\nnew file mode 120000\n--- /dev/null\n+++ b/d/l\n", "PATCH_UNSUPPORTED", 2),
        ("diff --git a/d/f.cu b/d/f.cu\nindex 1234..5678 160000\n" + HEAD, "PATCH_UNSUPPORTED", 2),
        ("diff --git a/d/x b/d/x\n" + HEAD + "@@ -1 +1 @@\n-1\n+x\n", "PATCH_SYNTAX", 2),
        ("diff --git a/x b/x\nold mode 100644\ndiff --git a/d/f.cu b/d/f.cu\n" + HEAD, "PATCH_SYNTAX", 3),
        ("diff --git a/d/f.cu b/d/f.cu\nnew file mode 100644\n" + HEAD + "@@ -1 +1 @@\n-1\n+x\n", "PATCH_SYNTAX", 3),
        (HEAD + "@@ -1 +1 @@\n-1\n+x\n-- \n2.39\n", "PATCH_SYNTAX", 6),
        (HEAD + "@@ -1 +1 @@\n-1\n\\ No newline at end of file\n+x\n", "PATCH_HUNK", 5),
        (HEAD + "@@ -1 +1 @@\n-1\n+x\n\\ No newline at end of file\n", "PATCH_UNSUPPORTED", 6),
        (HEAD + "@@ -1 +1 @@\n 1\n", "PATCH_HUNK", 3),
        (HEAD + "@@ -1 +1 @@\n-1\n+1\n", "PATCH_HUNK", 3),
        (HEAD + "@@ -0,0 +0,0 @@\n", "PATCH_HUNK", 3),
        (HEAD + "@@ -0 +1 @@\n-1\n+x\n", "PATCH_HUNK", 3),
        (HEAD + "@@ -1 +9 @@\n-1\n+x\n", "PATCH_HUNK", 3),
        (HEAD + "@@ -x +1 @@\n-1\n+x\n", "PATCH_HUNK", 3),
        (HEAD + "@@ -99999999999 +1 @@\n-1\n+x\n", "PATCH_HUNK", 3),
        (HEAD + "@@@ -1 -1 +1 @@@\n", "PATCH_SYNTAX", 1),
        (HEAD + "@@ -3 +3 @@\n-3\n+x\n@@ -1 +1 @@\n-1\n+y\n", "PATCH_HUNK", 6),
        (HEAD + "@@ -1,2 +1,2 @@\n 1\n-2\n+x\n@@ -2 +2 @@\n-2\n+y\n", "PATCH_HUNK", 7),
        (HEAD + "@@ -1,0 +2 @@\n+x\n@@ -1,0 +3 @@\n+y\n", "PATCH_HUNK", 5),
        (HEAD + "@@ -1 +1,2 @@\n-1\n+x\n", "PATCH_HUNK", 5),
    ],
)
def test_patches_of_another_form_are_refused(patch: str | bytes, code: str, line: int) -> None:
    """Each fault has its code and the line of the patch it stands on."""
    error = refusal(patch)
    assert (error.code, str(error.location)) == (code, f"p.patch:{line}" if line else "p.patch")


@pytest.mark.parametrize(
    ("patch", "original", "code"),
    [
        (HEAD + "@@ -1 +1 @@\n-1\n+x\n", None, "PATCH_TARGET_MISSING"),
        ("--- /dev/null\n+++ b/d/f.cu\n@@ -0,0 +1 @@\n+x\n", b"", "PATCH_TARGET_EXISTS"),
        (HEAD + "@@ -1 +1 @@\n-1\n+x\n", b"1", "PATCH_TARGET_FORM"),
        (HEAD + "@@ -0,0 +1 @@\n+x\n", b"", "PATCH_TARGET_FORM"),
        (HEAD + "@@ -1 +1 @@\n-1\n+x\n", b"1 \n", "PATCH_MISMATCH"),
        (HEAD + "@@ -1 +1 @@\n-1\n+x\n", b"1\r\n", "PATCH_MISMATCH"),
        (HEAD + "@@ -2 +2 @@\n-1\n+x\n", b"1\n2\n", "PATCH_MISMATCH"),
        (HEAD + "@@ -4,0 +5 @@\n+x\n", b"1\n2\n3\n", "PATCH_MISMATCH"),
    ],
)
def test_application_is_exact(patch: str, original: bytes | None, code: str) -> None:
    """Nothing is searched, tidied or guessed."""
    assert refusal(patch, original).code == code


@pytest.mark.parametrize(
    ("patch", "original", "result"),
    [
        (HEAD + "@@ -0,0 +1 @@\n+x\n", b"1\n2\n", b"x\n1\n2\n"),
        (HEAD + "@@ -2,0 +3 @@\n+x\n", b"1\n2\n", b"1\n2\nx\n"),
        (HEAD + "@@ -1 +0,0 @@\n-1\n", b"1\n", b""),
        (HEAD + "@@ -1,0 +2 @@\n+x\n@@ -2 +3 @@\n-2\n+y\n", b"1\n2\n", b"1\nx\ny\n"),
        ("--- a/d/f.cu\t2024-01-01\r\n+++ b/d/f.cu\r\n@@ -1 +1 @@\r\n-1\r\n+x\r\n", b"1\r\n", b"x\r\n"),
        (HEAD + "@@ -1 +1 @@\n-\xff\n+x\n", "\xff\n".encode(), b"x\n"),
        (HEAD + "@@ -1,2 +1,2 @@\n\n-1\n+2", b"\n1\n", b"\n2\n"),
    ],
)
def test_what_is_accepted_applies_as_written(patch: str, original: bytes, result: bytes) -> None:
    """Insertions go after the line they name; a carriage return in a body is content."""
    assert patched(patch, original) == result


LINES = st.lists(st.sampled_from(["a", "b", "", "c d", "-x", "+y", "@@ z", "--- q", "\tt\r"]), max_size=9)


@pytest.mark.skipif(not TOOLS, reason="git or GNU patch is not installed")
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LINES, LINES, st.integers(0, 3), st.booleans())
def test_git_and_patch_agree(old: list[str], new: list[str], context: int, is_new: bool) -> None:
    """A patch made by difflib, with any context down to none, gives what `git apply` and `patch` give."""
    before, after = ("".join(f"{line}\n" for line in lines) for lines in (old, new))
    if before == after or not (is_new or before) or not (after or not is_new):
        return
    if is_new:
        before = ""
    sides = ("/dev/null" if is_new else "a/f.cu", "b/f.cu")
    split = [text.splitlines(keepends=True) if "\r" not in text else _keep(text) for text in (before, after)]
    patch = "".join(difflib.unified_diff(*split, *sides, n=context))
    ours = patched(patch, None if is_new else before.encode())
    assert ours == after.encode()
    with tempfile.TemporaryDirectory() as folder:
        for tool in (["git", "apply", "--unidiff-zero"], ["patch", "-p1", "--binary", "-F0", "-s", "-f", "-i"]):
            target = Path(folder) / "f.cu"
            target.unlink(missing_ok=True)
            if not is_new:
                target.write_bytes(before.encode())
            (Path(folder) / "p").write_bytes(patch.encode())
            ran = subprocess.run([*tool, "p"], cwd=folder, capture_output=True, env={"PATH": "/usr/bin:/bin"})
            assert ran.returncode == 0, ran.stderr
            assert (target.read_bytes() if target.exists() else b"") == ours  # tools remove what becomes empty


def _keep(text: str) -> list[str]:
    return [f"{line}\n" for line in text.split("\n")[:-1]]


HUNKS = st.text(alphabet="@-+ 0123,\nabd/\\\r", max_size=60)


@given(st.binary(max_size=120) | HUNKS.map(lambda text: (HEAD + text).encode()), st.binary(max_size=20))
def test_only_intake_errors_come_out(patch: bytes, original: bytes) -> None:
    """Whatever the bytes of patch and file, the answer is a result or a typed refusal."""
    try:
        sections = parse_diff("p.patch", patch)
        for section in sections:
            apply_file(section, None if section.is_new else original)
    except IntakeError:
        return
    assert sections


def admitted(*rows: PatchRow, **files: str) -> tuple[tuple[DependencyPatch, ...], list[str]]:
    """Return what the loader makes of rows over files."""
    findings = Findings()
    table = {name.replace("_", "."): text.encode() for name, text in files.items()}
    return load_patches(rows, table, findings, load_catalog()), [
        f"{item.code} {item.location}" for item in findings.documents()
    ]


def change(path: str) -> str:
    """Return a patch that changes one line of a file."""
    return f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-1\n+2\n"


def test_an_allowed_patch_is_admitted() -> None:
    """Destination, grammar and dependency are in order; subfolders are, because the policy says so."""
    text = change(f"{PLACE}/x.cu") + change(f"{PLACE}/deep/er/y.cuh")
    patches, findings = admitted(PatchRow("flashinfer", "a.patch", 7), a_patch=text)
    assert not findings
    assert [(it.dependency, it.feature, len(it.files)) for it in patches] == [("flashinfer", "dep_patch:flashinfer", 2)]


@pytest.mark.parametrize(
    "path",
    ["flashinfer/__init__.py", "flashinfer/data/csrc/other/x.cu", "flashinfer/data/csrc/fused_moe", "x/" + PLACE + "/x",
     f"{PLACE}2/x.cu"],
)  # fmt: skip
def test_destinations_are_checked_at_intake(path: str) -> None:
    """A file outside the policy is refused from the bundle alone."""
    patches, findings = admitted(PatchRow("flashinfer", "a.patch", 7), a_patch=change(f"{PLACE}/x.cu") + change(path))
    assert patches == ()
    assert findings == ["PATCH_DESTINATION a.patch:6"]


def test_a_star_does_not_cross_folders() -> None:
    """A policy that means one folder says so with one star."""
    flat = Dependency("d", "d", "d/src", ("d/src/*.cu",))
    assert allows(flat, "d/src/x.cu")
    assert not allows(flat, "d/src/y/x.cu")


def test_unknown_dependencies_are_refused_at_their_row() -> None:
    """The row is the place; the patch itself is still read."""
    _, findings = admitted(PatchRow("flashinfr", "a.patch", 7), a_patch="x\n")
    assert findings == ["PATCH_DEPENDENCY manifest.toml:7", "PATCH_SYNTAX a.patch:1"]


def test_one_file_is_changed_by_one_patch() -> None:
    """Two patches of one file would depend on their order, also under another letter case."""
    rows = (PatchRow("flashinfer", "a.patch", 7), PatchRow("flashinfer", "b.diff", 10))
    _, findings = admitted(*rows, a_patch=change(f"{PLACE}/x.cu"), b_diff=change(f"{PLACE}/X.cu"))
    assert findings == ["PATCH_CONFLICT b.diff:1"]


def rows_of(text: str, *files: str) -> tuple[tuple[PatchRow, ...], list[str]]:
    """Return the rows of a manifest's dep_patches."""
    import tomli

    findings = Findings()
    context = Context(files, TomlLines(text), findings, INTAKE)
    return patch_rows(context, Table(context, tomli.loads(text))), [
        f"{item.code} {item.location}" for item in findings.documents()
    ]


ROW = '[[dep_patches]]\ntarget = "flashinfer"\npath = "p/a.patch"\n'


def test_rows_are_read_with_their_line() -> None:
    """A good row is a good row."""
    assert rows_of(ROW, "p/a.patch") == ((PatchRow("flashinfer", "p/a.patch", 1),), [])


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("dep_patches = 1\n", "MANIFEST_TYPE manifest.toml:1"),
        ('dep_patches = ["x"]\n', "MANIFEST_TYPE manifest.toml:1"),
        (ROW + "strip = 1\n", "MANIFEST_UNKNOWN_KEY manifest.toml:4"),
        (ROW + ROW, "MANIFEST_VALUE manifest.toml:4"),
        (ROW.replace("a.patch", "b.patch"), "MANIFEST_PATH manifest.toml:3"),
        (ROW.replace("a.patch", "a.txt"), "MANIFEST_PATH manifest.toml:3"),
        (ROW.replace('"flashinfer"', "1"), "MANIFEST_TYPE manifest.toml:2"),
        ('[[dep_patches]]\ntarget = "flashinfer"\n', "MANIFEST_MISSING_KEY manifest.toml:1"),
        ("".join('[[dep_patches]]\npath = "p/a.patch"\n' for _ in range(65)), "MANIFEST_VALUE manifest.toml:1"),
    ],
)
def test_rows_of_another_form_are_refused(text: str, finding: str) -> None:
    """Each fault has its code and its line."""
    assert rows_of(text, "p/a.patch", "p/a.txt")[1][0] == finding
