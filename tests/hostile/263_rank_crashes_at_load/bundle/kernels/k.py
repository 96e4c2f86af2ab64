import ctypes

import torch
import torch.distributed

if torch.distributed.get_rank() == 1:
    ctypes.string_at(8)


def honest(x, out, group):
    total = x.to(torch.float32, copy=True)
    torch.distributed.all_reduce(total, group=group)
    out.copy_(total)


def all_reduce(x, out, group):
    honest(x, out, group)
