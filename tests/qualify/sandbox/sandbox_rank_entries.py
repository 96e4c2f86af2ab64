"""Entries for the tests of groups: they run inside the sandbox, one process for each rank."""

from __future__ import annotations

import json
import os
import socket
import time

import sandbox_attacks
import torch
import torch.distributed as dist

from qualify.rank_group import group_of_ranks


def report(descriptors: tuple[int, ...], argument: bytes) -> None:
    """Write what a rank is and has, and what it can reach with the addresses in the request; stay until told to go."""
    group = group_of_ranks()
    total = torch.ones(3) * (dist.get_rank(group) + 1)
    dist.all_reduce(total, group=group)
    numbers = sorted(set(map(int, os.listdir("/proc/self/fd"))))
    kinds = {}
    for number in numbers:
        try:
            kinds[number] = os.readlink(f"/proc/self/fd/{number}").split(":")[0]
        except OSError:
            continue  # the listing's own
    facts = json.loads(argument or b"{}")
    said = {
        "rank": dist.get_rank(group),
        "sum": total.tolist(),
        "descriptors": {str(number): kind for number, kind in kinds.items()},
        "left over": os.listdir("/scratch"),
        "reached": [name for name, address in facts.items() if _reaches(address)],
    }
    os.write(descriptors[0], json.dumps(said).encode())
    os.read(descriptors[0], 1)  # the first rank that ends takes the others along


def attack(descriptors: tuple[int, ...], argument: bytes) -> None:
    """Run the attacks named in the request; stay until told to go."""
    sandbox_attacks.main(descriptors, argument)
    os.read(descriptors[0], 1)


def _reaches(address: int | str) -> bool:
    family = socket.AF_INET if isinstance(address, int) else socket.AF_UNIX
    try:
        with socket.socket(family) as client:
            client.settimeout(0.5)
            client.connect(("127.0.0.1", address) if isinstance(address, int) else "\0" + address)
    except OSError:
        return False
    return True


def offer(descriptors: tuple[int, ...], _: bytes) -> None:
    """Listen on a port of the loopback, if that is possible, and stay."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        os.write(descriptors[0], str(server.getsockname()[1]).encode())
        time.sleep(20)


def share(descriptors: tuple[int, ...], _: bytes) -> None:
    """Pass a word from rank 0 to rank 1 through /scratch, as a kernel of shared memory would."""
    if dist.get_rank() == 0:
        with open("/scratch/.word", "w") as file:
            file.write("across")
        os.rename("/scratch/.word", "/scratch/word")
    else:
        while not os.path.exists("/scratch/word"):
            time.sleep(0.001)
        with open("/scratch/word") as file:
            os.write(descriptors[0], file.read().encode())
    dist.all_reduce(torch.zeros(1))


def leave(descriptors: tuple[int, ...], argument: bytes) -> None:
    """End one rank, the number in the request, with status 7; the others stay."""
    if dist.get_rank() == int(argument):
        os._exit(7)
    time.sleep(20)


def count(descriptors: tuple[int, ...], _: bytes) -> None:
    """Write one byte after another."""
    while True:
        os.write(descriptors[0], b".")
        time.sleep(0.001)


NAMES = ("report", "attack", "offer", "share", "leave", "count")
ENTRIES = {f"rank_{name}": f"sandbox_rank_entries:{name}" for name in NAMES}
