"""A rank of a group, inside the sandbox: how it finds the other ranks.

Invariants
1. Joining is code of ours and is over before foreign code is loaded and before the filter of system calls is in force.
   From then on the sockets to the other ranks are all the sockets a rank has; it cannot make, bind or connect another.
2. The ranks meet through a file of their own /scratch and the loopback of their own network. Nothing of the referee
   goes into it: no address, no port, no entropy.
3. A group that cannot be joined is a fault of the host: no foreign code has run.
"""

from __future__ import annotations

import datetime as dt
import os

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore
from torch.distributed.distributed_c10d import ProcessGroup

_MEETING_FILE = "/scratch/.ranks"
_PATIENCE = dt.timedelta(seconds=10)  # shorter than a sandbox waits for its child
_CALLS = dt.timedelta(days=1)  # deadlines of calls are the referee's
_joined: list[ProcessGroup] = []


def join(rank: int, ranks: int) -> None:
    """Join the other ranks of this sandbox. Raises what torch raises when they do not come."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = FileStore(_MEETING_FILE, ranks)
    store.set_timeout(_PATIENCE)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=_CALLS)
    group = dist.group.WORLD
    assert group is not None
    dist.all_reduce(torch.zeros(ranks), group=group)  # when it is over, every rank has all its connections
    if rank == 0:
        os.unlink(_MEETING_FILE)
    _joined.append(group)


def group_of_ranks() -> ProcessGroup | None:
    """Return the group this process has joined; None for an arm of one process."""
    return _joined[0] if _joined else None
