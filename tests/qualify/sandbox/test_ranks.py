"""Groups: ranks of one sandbox reach each other and nothing else, and live and die together."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest
import sandbox_attacks
import sandbox_battery
import sandbox_rank_entries

from config.errors import InternalError
from qualify.sandbox.client import SandboxedProcess, SandboxRefused, Zygote
from qualify.sandbox.outcome import OutcomeKind
from qualify.sandbox.policy import SandboxPolicy

FRONT = ("landlock", "seccomp")
PAIR = SandboxPolicy(ranks=2)


@pytest.fixture(scope="module")
def ranks() -> Iterator[Zygote]:
    """A fork server that can start groups."""
    with Zygote.start(
        ("torch", "qualify.rank_group", "sandbox_attacks", "sandbox_rank_entries"),
        extra_entries={**sandbox_attacks.ENTRIES, **sandbox_rank_entries.ENTRIES},
        extra_python_path=[str(Path(__file__).parent)],
        ablation=True,
    ) as server:
        yield server


class Group:
    """A running group with one channel to every rank."""

    def __init__(self, server: Zygote, entry: str, policy: SandboxPolicy, argument: bytes = b"") -> None:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(policy.ranks)]
        self.channels = [ours for ours, _ in pairs]
        try:
            self.process: SandboxedProcess = server.spawn(entry, policy, [one.fileno() for _, one in pairs], argument)
        except BaseException:
            self.close()
            raise
        finally:
            for _, theirs in pairs:
                theirs.close()
        for channel in self.channels:
            channel.settimeout(10)

    def close(self) -> None:
        """Close the channels."""
        for channel in self.channels:
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.close()
        self.close()

    def reports(self) -> list[Any]:
        """Return what every rank said, and let them go."""
        said = [json.loads(channel.recv(1 << 16)) for channel in self.channels]
        for channel in self.channels:
            with suppress(BrokenPipeError):  # the first one that went took it along
                channel.send(b".")
        return said


def arrived(channels: Sequence[socket.socket]) -> list[int]:
    """Return how many messages each channel holds, and take them."""
    counts = []
    for channel in channels:
        channel.setblocking(False)
        number = 0
        try:
            while channel.recv(1):
                number += 1
        except BlockingIOError:
            counts.append(number)
    return counts


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_find_each_other(ranks: Zygote, size: int) -> None:
    """Each knows its rank, holds its own descriptor and sockets to the others, and no file is left from joining."""
    with Group(ranks, "rank_report", SandboxPolicy(ranks=size)) as group:
        said = group.reports()
        assert [one["rank"] for one in said] == list(range(size))
        assert all(one["sum"] == [size * (size + 1) / 2] * 3 for one in said)
        assert all(one["left over"] == [] for one in said)
        for one in said:
            kinds = list(one["descriptors"].values())
            assert kinds.count("socket") == 1 + 1 + (size - 1)  # its channel, what it listened on, one to each other
        assert group.process.wait(10).ok
        assert len(group.process.host_pids) == size
        assert any(name.startswith("seccomp:") for name in group.process.layers)


def test_attacks_are_blocked_in_every_rank(ranks: Zygote, facts: dict[str, Any]) -> None:
    """What a single process cannot do, a rank cannot: the filter and all other layers are the same."""
    # A rank has sockets, and sees those of its own network; it is not alone in its sandbox.
    names = set(sandbox_attacks.BLOCKED) - {"use inherited descriptors", "see the host's sockets"}
    request = json.dumps({**facts, "attacks": sorted(names)}).encode()
    with Group(ranks, "rank_attack", sandbox_battery.policy_for(facts, ranks=2), request) as group:
        for said in group.reports():
            assert {name for name, what in said.items() if not what.startswith("blocked")} == set()


def test_nothing_outside_is_reached_even_without_a_filter(ranks: Zygote, facts: dict[str, Any]) -> None:
    """With Landlock and the filter of system calls left out, the private network alone keeps ranks to themselves."""
    policy = SandboxPolicy(ranks=2, ablate=FRONT)
    with Group(ranks, "rank_offer", policy) as other:
        ports = {f"rank {rank} of another group": int(one.recv(16)) for rank, one in enumerate(other.channels)}
        targets = {"the host's loopback": facts["port"], "the host's abstract socket": facts["abstract"], **ports}
        with Group(ranks, "rank_report", policy, json.dumps(targets).encode()) as group:
            assert [one["reached"] for one in group.reports()] == [[], []]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", min(ports.values())), timeout=1)


def test_ranks_share_a_place_to_write(ranks: Zygote) -> None:
    """What is written to /scratch by one rank is seen by the others: the way for kernels of shared memory."""
    with Group(ranks, "rank_share", PAIR) as group:
        assert group.channels[1].recv(16) == b"across"
        assert group.process.wait(10).ok


def test_ranks_are_frozen_and_resumed_together(ranks: Zygote) -> None:
    """Nothing comes from any rank while the group is frozen, and from all again afterwards."""
    with Group(ranks, "rank_count", PAIR) as group:
        for channel in group.channels:
            assert channel.recv(1) == b"."
        group.process.freeze()
        while not group.process.is_stopped():
            time.sleep(0.001)
        arrived(group.channels)
        time.sleep(0.05)
        assert arrived(group.channels) == [0, 0]
        group.process.resume()
        for channel in group.channels:
            channel.settimeout(10)
            assert channel.recv(1) == b"."


@pytest.mark.parametrize("rank", [0, 1])
def test_a_group_ends_with_its_first_rank(ranks: Zygote, rank: int) -> None:
    """The outcome is that of the rank that ended first, and names it; nothing of the others is left."""
    with Group(ranks, "rank_leave", PAIR, str(rank).encode()) as group:
        outcome = group.process.wait(10)
        assert (outcome.kind, outcome.exit_status, outcome.rank) == (OutcomeKind.EXITED, 7, rank)
        assert not any(Path(f"/proc/{pid}").exists() for pid in group.process.host_pids)


def test_closing_a_group_leaves_nothing(ranks: Zygote) -> None:
    """Killing the group kills every rank, frozen or not, and descriptors are given back."""
    before = len(os.listdir("/proc/self/fd"))
    with Group(ranks, "rank_count", PAIR) as group:
        group.process.freeze()
    assert not any(Path(f"/proc/{pid}").exists() for pid in group.process.host_pids)
    assert len(os.listdir("/proc/self/fd")) == before


def test_ranks_that_cannot_join_are_refused(ranks: Zygote) -> None:
    """Without room for the threads of the group nothing foreign runs, and the host is to blame."""
    with pytest.raises(SandboxRefused) as caught:
        Group(ranks, "rank_report", SandboxPolicy(ranks=2, processes=2))
    assert caught.value.outcome.layer == "setup"


@pytest.mark.parametrize("fields", [{"ranks": 0}, {"ranks": 9}, {"ranks": 2, "devices": ("/dev/nvidia0",)}])
def test_impossible_groups_are_refused(fields: dict[str, Any]) -> None:
    """Too many ranks, none, or ranks with a device are a mistake of the caller."""
    with pytest.raises(InternalError) as caught:
        SandboxPolicy(**fields)
    assert caught.value.code == "SANDBOX_BAD_POLICY"


def test_every_rank_has_as_many_descriptors(ranks: Zygote) -> None:
    """A descriptor that belongs to no rank is a mistake of the caller."""
    with pytest.raises(InternalError) as caught:
        ranks.spawn("rank_report", PAIR, [0])
    assert caught.value.code == "SANDBOX_BAD_SPAWN"
