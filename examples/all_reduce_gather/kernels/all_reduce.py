import torch


def all_reduce(x, out, group):
    ranks = torch.distributed.get_world_size(group)
    # Parts travel in the dtype they have, half the bytes of a sum in float32, and are summed and rounded once on arrival.
    parts = torch.empty((ranks * x.shape[0], x.shape[1]), dtype=x.dtype, device=x.device)
    torch.distributed.all_gather_into_tensor(parts, x, group=group)
    out.copy_(parts.view(ranks, *x.shape).sum(dim=0, dtype=torch.float32))
