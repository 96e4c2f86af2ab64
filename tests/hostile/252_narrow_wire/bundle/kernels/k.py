import torch


def all_reduce(x, out, group):
    ranks = torch.distributed.get_world_size(group)
    parts = torch.empty((ranks * x.shape[0], x.shape[1]), dtype=torch.bfloat16)
    torch.distributed.all_gather_into_tensor(parts, x.to(torch.bfloat16), group=group)
    out.copy_(parts.view(ranks, *x.shape).sum(dim=0, dtype=torch.float32))
