"""The stock form of norm.rmsnorm, as engines write it without a kernel: reduce in float32, scale, round, weight.

It is loaded into arms by the same loader, along the same path, as the source of a bundle.
"""

import torch


def rmsnorm(x, weight, out, eps):  # type: ignore[no-untyped-def]
    wide = x.float()
    variance = wide.pow(2).mean(-1, keepdim=True)
    torch.mul((wide * torch.rsqrt(variance + eps)).to(x.dtype), weight, out=out)
