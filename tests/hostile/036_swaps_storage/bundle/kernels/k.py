import torch


def silu_and_mul(x, out):
    d = out.shape[-1]
    mine = torch.nn.functional.silu(x[..., :d]) * x[..., d:]
    out.set_(mine)
