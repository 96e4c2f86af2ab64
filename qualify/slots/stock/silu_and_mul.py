"""The stock form of activation.silu_and_mul, as its contract writes it: silu in float32, rounded, times up.

It is loaded into arms by the same loader, along the same path, as the source of a bundle.
"""

import torch


def silu_and_mul(x, out):  # type: ignore[no-untyped-def]
    width = x.shape[-1] // 2
    gate = torch.nn.functional.silu(x[..., :width].float()).to(x.dtype)
    torch.mul(gate, x[..., width:], out=out)
