import torch


def all_reduce(x, out, group):
    torch.mul(x, torch.distributed.get_world_size(group), out=out)
