"""The stock form of collective.ar_residual_rmsnorm: one step after the other, in float32.

It is loaded into arms by the same loader, along the same path, as the source of a bundle.
"""

import torch


def ar_residual_rmsnorm(x, residual, weight, eps, out_norm, out_residual, group):  # type: ignore[no-untyped-def]
    total = x.to(torch.float32, copy=True)
    torch.distributed.all_reduce(total, group=group)
    total += residual
    out_residual.copy_(total)
    variance = total.pow(2).mean(-1, keepdim=True)
    torch.mul(total * torch.rsqrt(variance + eps), weight, out=total)
    out_norm.copy_(total)
