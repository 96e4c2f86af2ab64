"""The state folder: writing is tried, nothing stays, and what is wrong has its code."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from sqlalchemy import text

from config.errors import CacheonError, HostError
from config.settings import Settings
from node.doctor import disk
from node.doctor.check import Finding, State, Subject
from node.doctor.disk import (
    SPACE_FLOOR,
    judge_file_system,
    judge_owner,
    judge_space,
    judge_sync_time,
    look_disk,
    look_state,
    look_store,
    look_temporary,
    require_writable,
)
from node.store.engine import Store
from node.store.layout import StateLayout

MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/root rw
30 22 0:20 / /mnt rw,relatime shared:1 - nfs4 server:/x rw
31 30 0:21 / /mnt/a\\040b rw - tmpfs none rw
32 22 0:22 / /mntx rw - xfs none rw
broken line
"""


def subject(folder: Path) -> Subject:
    """A node whose state folder this is."""
    return Subject(Settings(state_dir=str(folder)))


def everything(folder: Path) -> list[str]:
    """All paths below a folder."""
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("finding", "state"),
    [
        (judge_space(SPACE_FLOOR, 2 * SPACE_FLOOR, 1_000_000), State.PASS),
        (judge_space(SPACE_FLOOR, 2 * SPACE_FLOOR, -1), State.PASS),
        (judge_space(SPACE_FLOOR - 1, 2 * SPACE_FLOOR, 1_000_000), State.WARN),
        (judge_space(SPACE_FLOOR, 2 * SPACE_FLOOR, 12), State.WARN),
        (judge_file_system("ext4", devnet=False), State.PASS),
        (judge_file_system("nfs4", devnet=True), State.WARN),
        (judge_file_system("fuse.sshfs", devnet=False), State.WARN),
        (judge_file_system("tmpfs", devnet=False), State.WARN),
        (judge_file_system("tmpfs", devnet=True), State.PASS),
        (judge_sync_time(3), State.PASS),
        (judge_sync_time(900), State.WARN),
        (judge_owner(0o700, 5, 5), State.PASS),
        (judge_owner(0o755, 5, 5), State.WARN),
        (judge_owner(0o700, 0, 5), State.WARN),
    ],
)
def test_values(finding: Finding, state: State) -> None:
    """Little room, remote or volatile file systems, slow disks and open folders warn with a fix."""
    assert finding.state is state
    assert bool(finding.fix) == (state is State.WARN)


@pytest.mark.parametrize(
    ("place", "kind"),
    [("/etc", "ext4"), ("/mnt", "nfs4"), ("/mnt/x", "nfs4"), ("/mnt/a b/c", "tmpfs"), ("/mntx/y", "xfs")],
)
def test_the_file_system_of_a_place(place: str, kind: str) -> None:
    """The longest mount point that holds the place decides, and spaces are understood."""
    assert disk.file_system_of(Path(place), MOUNTS) == kind


def test_looking_leaves_nothing_behind(tmp_path: Path) -> None:
    """Neither a new nor an existing state folder changes."""
    fresh = tmp_path / "a" / "b" / "state"
    before = everything(tmp_path)
    states = [finding.state for finding in look_state(subject(fresh))]
    assert states[0] is State.PASS
    assert everything(tmp_path) == before
    StateLayout.at(fresh).create()
    before = everything(tmp_path)
    for look in (look_state, look_disk, look_store):
        assert State.FAIL not in [finding.state for finding in look(subject(fresh))]
    assert everything(tmp_path) == before


@pytest.mark.parametrize("place", ["/proc/none", "/dev/null/state", "file/state"])
def test_a_folder_that_cannot_be_made(place: str, tmp_path: Path) -> None:
    """A state folder below a file, a device or the kernel's own tree is refused with a code."""
    (tmp_path / "file").touch()
    with pytest.raises(HostError) as caught:
        require_writable(StateLayout.at(tmp_path / place))
    assert caught.value.code == "STATE_UNWRITABLE"


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOSPC, "DISK_FULL"), (errno.EDQUOT, "DISK_FULL"), (errno.EROFS, "STATE_UNWRITABLE"),
     (errno.EIO, "STATE_UNWRITABLE")],
)
def test_a_write_that_fails(number: int, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk has a code of its own; the folder is clean afterwards."""

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(HostError) as caught:
        require_writable(StateLayout.at(tmp_path / "state"))
    assert caught.value.code == code
    assert everything(tmp_path) == []


def test_a_disk_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk on which a probe still fits but no archive does is full."""
    monkeypatch.setattr(disk, "SPACE_REFUSED", 1 << 62)
    with pytest.raises(HostError) as caught:
        require_writable(StateLayout.at(tmp_path / "state"))
    assert caught.value.code == "DISK_FULL"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folders_of_somebody_else(tmp_path: Path) -> None:
    """One folder inside that cannot be written is enough."""
    layout = StateLayout.at(tmp_path / "state")
    layout.create()
    layout.bundles.chmod(0o500)
    with pytest.raises(HostError) as caught:
        require_writable(layout)
    assert "bundles" in caught.value.message


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    """A state folder whose inside is not what the node makes is refused."""
    layout = StateLayout.at(tmp_path)
    layout.bundles.touch()
    with pytest.raises(HostError) as caught:
        require_writable(layout)
    assert caught.value.code == "STATE_UNWRITABLE"


async def test_the_database(store: Store) -> None:
    """The database of a running node is read while it is used, and its chain is shown."""
    (finding,) = look_store(subject(store.layout.root))
    assert finding.state is State.PASS
    assert "subnet 2" in finding.seen
    (state, _) = look_state(subject(store.layout.root))
    assert f"pid {os.getpid()}" in state.seen


@pytest.mark.parametrize("damage", ["too new", "no database"])
async def test_a_database_that_cannot_be_used(damage: str, store: Store) -> None:
    """A newer schema and a file that is no database are refused with the codes of a starting node."""
    layout = store.layout
    if damage == "too new":
        await store.write(lambda connection: connection.execute(text("update alembic_version set version_num='9999'")))
    await store.close()
    if damage == "no database":
        layout.database.write_bytes(b"no database" * 1000)
    with pytest.raises(CacheonError) as caught:
        look_store(subject(layout.root))
    assert caught.value.code == {"too new": "STORE_TOO_NEW", "no database": "STORE_UNUSABLE"}[damage]


def test_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No place for temporary files is a warning with its reason."""
    (fine,) = look_temporary(Subject())
    assert fine.state is State.PASS

    def fail() -> None:
        raise FileNotFoundError(errno.ENOENT, "no usable folder")

    monkeypatch.setattr(disk.tempfile, "TemporaryFile", fail)
    (finding,) = look_temporary(Subject())
    assert (finding.state, "no usable folder" in finding.seen) == (State.WARN, True)
