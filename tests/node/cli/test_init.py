"""`cacheon init`: a new bundle that passes, or nothing at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from config.errors import ConfigurationError
from intake.served import SERVED
from node.cli.judges import judges_of
from node.cli.new_folder import write_new_folder

if TYPE_CHECKING:
    from tests.node.cli.conftest import RunCli

SILU = ("--target", "activation.silu_and_mul")


def tree(folder: Path) -> list[str]:
    """Return every path below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_new_bundle_passes_the_scan_and_is_packed(cli: RunCli, tmp_path: Path) -> None:
    """What is written is what is listed; scan and chain-package take it as it is."""
    ran = cli("init", "new/My silu!", *SILU, "--json")
    assert (ran.code, ran.err) == (0, "")
    data = ran.document["data"]
    assert data["path"] == str(tmp_path / "new" / "My silu!")
    assert (data["bundle_id"], data["target_id"], data["target_kind"]) == ("My-silu", SILU[1], "slot")
    assert data["calls"] == ["silu_and_mul(x, out)"]
    assert (data["judged_by"], data["findings"]) == (["cpu-small"], [])
    assert set(data["files"]) == {path for path in tree(tmp_path / "new" / "My silu!") if "." in path}
    assert tree(tmp_path / "new")[0] == "My silu!"
    assert cli("scan", "new/My silu!").code == 0
    assert cli("chain-package", "new/My silu!").code == 0


def test_the_next_command_is_said(cli: RunCli) -> None:
    """A person sees the call, the files and what to do next, quoted for a shell."""
    ran = cli("init", "my silu", *SILU)
    assert "call    silu_and_mul(x, out)" in ran.out
    assert "then `cacheon verify 'my silu'`" in ran.err
    assert "not yet" not in ran.err


def test_a_target_that_nothing_executes_yet_is_written_with_its_one_finding(cli: RunCli) -> None:
    """Scan finds what init announced and nothing else; a person is told so, and whether any arena measures it."""
    expected = [] if "prepare" in SERVED else ["FEATURE_NOT_SERVED"]
    ran = cli("init", "moe", "--target", "moe.fused_experts", "--dtype", "bf16", "--architecture", "SM_90")
    assert ran.code == 0
    assert "then `cacheon scan moe`" in ran.err or not expected
    assert ("FEATURE_NOT_SERVED" in ran.err) == bool(expected)
    assert ("no arena of this release measures moe.fused_experts" in ran.err) == (not judges_of("moe.fused_experts"))
    findings = cli("scan", "moe", "--json").document["data"]["findings"]
    assert [finding["code"] for finding in findings] == expected
    again = cli("init", "again", "--target", "moe.fused_experts", "--json").document["data"]
    assert (again["findings"], again["judged_by"]) == (findings, list(judges_of("moe.fused_experts")))


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (("--target", "activation.silu_and_mull"), "INIT_TARGET_UNKNOWN", "activation.silu_and_mul"),
        (("--target", "qwerty"), "INIT_TARGET_UNKNOWN", "cacheon targets"),
        ((*SILU, "--bundle-id", "no good"), "INIT_BUNDLE_ID", "--bundle-id"),
        ((*SILU, "--dtype", "float8"), "INIT_DTYPE_UNKNOWN", "float"),
        ((*SILU, "--architecture", ""), "INIT_ARCHITECTURE", "architecture"),
        ((), "USAGE", "--help"),
    ],
)
def test_a_bad_request_writes_nothing(
    cli: RunCli, tmp_path: Path, arguments: tuple[str, ...], code: str, hint: str
) -> None:
    """The command line is at fault, says with what, and the folder does not appear."""
    ran = cli("init", "bundle", *arguments, "--json")
    assert ran.code == 2
    assert ran.document["error"]["code"] == code
    assert hint in ran.document["error"]["hint"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["full folder", "file", "dangling link"])
def test_what_is_there_stays(cli: RunCli, tmp_path: Path, kind: str) -> None:
    """A folder with anything in it, a file and a broken link are refused and left alone."""
    place = tmp_path / "bundle"
    if kind == "full folder":
        place.mkdir()
        (place / ".hidden").write_text("mine")
    elif kind == "file":
        place.write_text("mine")
    else:
        place.symlink_to("nowhere")
    ran = cli("init", "bundle", *SILU, "--json")
    assert (ran.code, ran.document["error"]["code"]) == (2, "INIT_FOLDER_TAKEN")
    assert tree(tmp_path) == (["bundle", "bundle/.hidden"] if kind == "full folder" else ["bundle"])


def test_an_empty_folder_is_filled_where_it_is(cli: RunCli, tmp_path: Path) -> None:
    """`init .` works, and the folder that a shell stands in is still the same one."""
    before = tmp_path.stat().st_ino
    ran = cli("init", ".", *SILU, "--bundle-id", "here-v1", "--json")
    assert ran.code == 0, ran.out
    assert tmp_path.stat().st_ino == before
    assert "manifest.toml" in tree(tmp_path)
    assert not [path for path in tree(tmp_path) if path.startswith(".")]
    assert cli("scan", ".").code == 0


def test_the_mode_of_a_new_folder_is_the_user_s_choice(tmp_path: Path) -> None:
    """Files and folders follow the umask, as those of any editor do."""
    earlier = os.umask(0o027)
    try:
        made = write_new_folder(tmp_path / "new", {"a.txt": b"", "b/c.txt": b""}, last="a.txt")
    finally:
        os.umask(earlier)
    modes = {str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in (made, *made.rglob("*"))}
    assert modes == {"new": 0o750, "new/a.txt": 0o640, "new/b": 0o750, "new/b/c.txt": 0o640}


@pytest.mark.parametrize("exists", [False, True], ids=["new", "empty"])
@pytest.mark.parametrize("failing", ["write", "move"])
def test_a_failure_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, exists: bool
) -> None:
    """A disk that fills up, or a move that fails at the last entry, is one error and no file."""
    place = tmp_path / "bundle"
    if exists:
        place.mkdir()
    files = {"a/b.py": b"", "manifest.toml": b""}
    rename, write = os.rename, Path.write_bytes

    def no_move(source: Path, target: Path) -> None:
        if Path(target).name in ("bundle", "manifest.toml"):
            raise OSError(28, "No space left on device")
        rename(source, target)

    def no_write(path: Path, content: bytes) -> int:
        if path.name == "manifest.toml":
            raise OSError(28, "No space left on device")
        return write(path, content)

    if failing == "move":
        monkeypatch.setattr(os, "rename", no_move)
    else:
        monkeypatch.setattr(Path, "write_bytes", no_write)
    with pytest.raises(ConfigurationError) as caught:
        write_new_folder(place, files, last="manifest.toml")
    assert caught.value.code == "INIT_FOLDER_UNWRITABLE"
    assert "No space left on device" in caught.value.message
    assert tree(tmp_path) == (["bundle"] if exists else [])


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """What could be written but not be shown is refused before anything is."""
    with pytest.raises(ConfigurationError) as caught:
        write_new_folder(tmp_path / os.fsdecode(b"\xff"), {"manifest.toml": b""}, last="manifest.toml")
    assert caught.value.code == "INIT_FOLDER_UNWRITABLE"
    assert caught.value.message.isascii()
    assert list(tmp_path.iterdir()) == []


def test_a_place_below_a_file_is_one_error(tmp_path: Path) -> None:
    """Whatever the system refuses about the place is the operator's to mend."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigurationError) as caught:
        write_new_folder(tmp_path / "file" / "bundle", {"manifest.toml": b""}, last="manifest.toml")
    assert caught.value.code == "INIT_FOLDER_UNWRITABLE"
    assert tree(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("folder", "bundle_id"),
    [
        ("ünï", "uni"),
        ("Mein Bündel", "Mein-Bundel"),
        ("наш", "my-bundle"),
        ("silu 束", "my-bundle"),
        ("...", "my-bundle"),
        ("silu_fast.v2", "silu_fast.v2"),
        ("a" * 63 + "--b", "a" * 63),
    ],
)
def test_a_bundle_is_called_like_its_folder(cli: RunCli, tmp_path: Path, folder: str, bundle_id: str) -> None:
    """Accents are dropped; a name in other letters gives no id, since what would be left of it is no name."""
    ran = cli("init", str(tmp_path / folder), *SILU, "--json")
    assert ran.document["data"]["bundle_id"] == bundle_id
