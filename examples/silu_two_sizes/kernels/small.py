import torch


def silu_small(x, out):
    # What a few tokens need fits in the cache as it is.
    width = out.shape[-1]
    torch.ops.aten.silu.out(x[..., :width], out=out)
    out.mul_(x[..., width:])
