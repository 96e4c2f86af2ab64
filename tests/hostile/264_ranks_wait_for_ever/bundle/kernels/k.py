import torch


def honest(x, out, group):
    total = x.to(torch.float32, copy=True)
    torch.distributed.all_reduce(total, group=group)
    out.copy_(total)


def all_reduce(x, out, group):
    honest(x, out, group)
    if torch.distributed.get_rank(group) == 0:
        torch.distributed.barrier(group)
        torch.distributed.barrier(group)
    else:
        torch.distributed.barrier(group)
