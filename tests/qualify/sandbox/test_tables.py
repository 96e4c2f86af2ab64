"""The system-call table, the filter made of it, and cgroup leaves."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from qualify.sandbox import cgroup
from qualify.sandbox.layers import LAYERS, LayerMissing
from qualify.sandbox.policy import SandboxPolicy
from qualify.sandbox.seccomp import FilterProfile, build_filter
from qualify.sandbox.syscall_table import ADVICE, ALLOWED, FATAL, FILTERED, GPU, NEWEST_KNOWN, TOOL

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
X86_64, I386 = 0xC000003E, 0x40000003


def _decide(program: bytes, number: int, arguments: tuple[int, ...] = (), architecture: int = X86_64) -> int:
    """Interpret a filter the way the kernel does and return its action."""
    padded = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack("<iIQ6Q", number, architecture, 0, *padded)
    accumulator, at = 0, 0
    while True:
        code, if_true, if_false, value = struct.unpack_from("HBBI", program, 8 * at)
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x15:
                at += if_true if accumulator == value else if_false
            case 0x35:
                at += if_true if accumulator >= value else if_false
            case 0x45:
                at += if_true if accumulator & value else if_false
            case 0x54:
                accumulator &= value
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"instruction {code:#x}")


def test_every_call_number_has_one_meaning() -> None:
    """No number stands in two tables or twice in one."""
    numbers = [*ALLOWED.values(), *FATAL.values(), *FILTERED.values(), *ADVICE.values()]
    assert len(numbers) == len(set(numbers))
    assert max(numbers) <= NEWEST_KNOWN


def test_the_filter_decides_as_the_tables_say() -> None:
    """Allowed calls pass, fatal ones kill, all others fail; other architectures and x32 are killed."""
    program = build_filter(2)
    for number in range(NEWEST_KNOWN + 10):
        action = _decide(program, number)
        if number in ALLOWED.values():
            assert action == ALLOW
        elif number in FATAL.values():
            assert action == KILL
        elif number in ADVICE.values():
            assert action == ERRNO  # success, and nothing is done
        elif number not in FILTERED.values():
            assert action == ERRNO | (38 if number > NEWEST_KNOWN else 1)
    assert _decide(program, ALLOWED["read"], architecture=I386) == KILL
    assert _decide(program, 0x40000000 | ALLOWED["read"]) == KILL


@pytest.mark.parametrize(
    ("name", "arguments", "action"),
    [
        ("clone", (0x3D0F00,), ALLOW),  # glibc
        ("clone", (0x7D0F00,), ALLOW),  # musl
        ("clone", (17,), ERRNO | 1),
        ("clone", (0x3D0F00 | 0x10000000,), ERRNO | 1),
        ("clone", (0x3D0F00 | 0x4000,), ERRNO | 1),  # CLONE_VFORK: the caller sleeps where nothing stops it
        ("clone", (0x3D0F00 & ~0x400,), ERRNO | 1),  # a table of descriptors of its own
        ("clone3", (0, 88), ERRNO | 38),
        ("kill", (2, 15), ALLOW),
        ("kill", (2, 9), KILL),
        ("kill", (1, 9), ERRNO | 1),
        ("kill", (2**64 - 1, 9), ERRNO | 1),
        ("tgkill", (2, 5, 6), ALLOW),
        ("tgkill", (2, 5, 9), KILL),
        ("tgkill", (1, 1, 9), ERRNO | 1),
        ("sendto", (4, 0, 0, 0, 0, 0), ALLOW),
        ("sendto", (4, 0, 0, 0, 0x7F0000000000, 16), ERRNO | 1),
        ("sendto", (4, 0, 0, 0, 0x1000, 16), ERRNO | 1),
        ("ioctl", (1, 0x5401), ALLOW),
        ("ioctl", (1, 0x5412), ERRNO | 1),
        ("prlimit64", (0, 7), ALLOW),
        ("prlimit64", (2, 7), ALLOW),
        ("prlimit64", (1, 7), ERRNO | 1),
        ("prlimit64", (0, 0, 0x1000), ERRNO | 1),
        ("prlimit64", (0, 0, 0x7F0000000000), ERRNO | 1),
        ("prctl", (15,), ALLOW),
        ("prctl", (4, 1), ERRNO | 1),
        ("arch_prctl", (0x1023, 18), ALLOW),
        ("arch_prctl", (0x1002,), ERRNO | 1),
        ("fcntl", (3, 1030), ALLOW),
        ("fcntl", (3, 6), ERRNO | 1),
        ("fcntl", (3, 1033), ERRNO | 1),
        ("madvise", (0x10000, 4096, 4), ALLOW),
        ("madvise", (0x10000, 4096, 14), ALLOW),
        ("madvise", (0x10000, 4096, 3), ERRNO),
        ("madvise", (0x10000, 4096, 21), ERRNO),
        ("madvise", (0x10000, 4096, 25), ERRNO | 22),
    ],
)
def test_arguments_decide_where_they_matter(name: str, arguments: tuple[int, ...], action: int) -> None:
    """Threads but no processes, signals to itself only, none that passes for another's, no addresses, no locks."""
    assert _decide(build_filter(2), FILTERED[name], arguments) == action


@pytest.mark.parametrize(
    ("name", "arguments", "action"),
    [
        ("socket", (1, 5, 0), ALLOW),  # AF_UNIX
        ("socket", (2, 1, 0), ERRNO | 1),
        ("socket", (16, 3, 0), ERRNO | 1),
        ("ioctl", (3, 0xC020462A), ALLOW),  # a call of the NVIDIA driver, type 'F'
        ("ioctl", (3, 0x30000001), ALLOW),  # unified memory starts
        ("ioctl", (3, 0x49), ALLOW),  # a plain number of unified memory
        ("ioctl", (1, 0x5401), ALLOW),
        ("ioctl", (1, 0x5412), ERRNO | 1),  # TIOCSTI
        ("ioctl", (3, 0xC0106409), ERRNO | 1),  # a call of the DRM nodes, type 'd'
        ("ioctl", (3, 0xAE01), ERRNO | 1),  # make a virtual machine
        ("clone", (17,), ERRNO | 1),
        ("kill", (1, 9), ERRNO | 1),
        ("prctl", (4, 1), ERRNO | 1),
    ],
)
def test_the_gpu_profile_adds_its_driver_and_nothing_else(name: str, arguments: tuple[int, ...], action: int) -> None:
    """Unix sockets and the driver's own calls pass; other families, other devices and processes do not."""
    assert _decide(build_filter(2, FilterProfile.GPU), FILTERED[name], arguments) == action


@pytest.mark.parametrize(
    ("name", "arguments", "action"),
    [
        ("clone", (17,), ALLOW),
        ("clone", (17 | 0x10000000,), ERRNO | 1),
        ("clone3", (0, 88), ERRNO | 38),
        ("kill", (7, 9), ALLOW),
        ("arch_prctl", (0x1002, 0), ALLOW),
        ("ioctl", (1, 0x5412), ERRNO | 1),
        ("socket", (1, 1, 0), ERRNO | 1),
        ("prlimit64", (0, 7, 0x1000), ALLOW),
        ("prlimit64", (7, 7), ERRNO | 1),
    ],
)
def test_the_tool_profile_adds_processes_and_nothing_else(name: str, arguments: tuple[int, ...], action: int) -> None:
    """Programs start and are signalled; namespaces, sockets and terminal tricks stay out."""
    assert _decide(build_filter(0, FilterProfile.TOOL), FILTERED[name], arguments) == action


@pytest.mark.parametrize(("profile", "added"), [("gpu", GPU), ("tool", TOOL)])
def test_profiles_differ_by_their_tables_only(profile: str, added: dict[str, int]) -> None:
    """Every call that a profile decides by its number is decided as for the CPU, but for its own few."""
    ours, theirs = build_filter(2, FilterProfile(profile)), build_filter(2)
    for number in set(range(NEWEST_KNOWN + 10)) - set(FILTERED.values()):
        expected = ALLOW if number in added.values() else _decide(theirs, number)
        assert _decide(ours, number) == expected


def test_every_layer_says_what_to_do() -> None:
    """Each layer has a purpose and a fix, and only three can be given up."""
    assert all(layer.purpose and layer.fix for layer in LAYERS.values())
    assert {name for name, layer in LAYERS.items() if layer.waivable} == {"landlock", "seccomp", "cgroup"}


def test_a_leaf_carries_the_policy_s_limits(tmp_path: Path) -> None:
    """A leaf is made with memory and task limits, and says when the kernel killed for memory."""
    policy = SandboxPolicy(memory_bytes=64 << 20, scratch_bytes=1 << 20)
    leaf = cgroup.make_leaf(str(tmp_path), 1, policy, own_tasks=2)
    folder = tmp_path / f"cacheon-{os.getpid()}-1"
    assert (folder / "memory.max").read_text() == str(65 << 20)
    assert (folder / "pids.max").read_text() == "34"
    assert (folder / "memory.oom.group").read_text() == "1"
    (folder / "cgroup.procs").write_text("")
    leaf.join()
    assert (folder / "cgroup.procs").read_text() == "0"
    assert not leaf.killed_for_memory()
    (folder / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    assert leaf.killed_for_memory()


def test_a_leaf_that_cannot_be_made_names_the_layer(tmp_path: Path) -> None:
    """A folder that takes no leaf is a missing cgroup layer."""
    with pytest.raises(LayerMissing) as caught:
        cgroup.make_leaf(str(tmp_path / "missing"), 1, SandboxPolicy(), own_tasks=2)
    assert caught.value.layer == "cgroup"


def test_only_a_delegated_folder_is_a_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves are made in the own cgroup or the one above, whichever passes the controllers on."""
    own = tmp_path / "slice" / "service"
    own.mkdir(parents=True)
    monkeypatch.setattr(cgroup, "_own_folder", lambda: (str(tmp_path), str(own)))
    assert cgroup.find_parent() is None
    for folder in (own, own.parent):
        (folder / "cgroup.controllers").write_text("cpu memory pids\n")
    (own / "cgroup.subtree_control").mkdir()  # refuses the write, as a cgroup with processes in it does
    assert cgroup.find_parent() is None
    (own.parent / "cgroup.subtree_control").write_text("memory pids\n")
    assert cgroup.find_parent() == str(own.parent)
    monkeypatch.setattr(cgroup, "_own_folder", lambda: None)
    assert cgroup.find_parent() is None


def test_the_own_cgroup_can_be_found_or_not() -> None:
    """Reading where this process stands never fails, and what is found exists."""
    found = cgroup._own_folder()
    assert found is None or os.path.isdir(found[0])
