import torch

WASTE = torch.ones(1 << 20)


def honest(x, out):
    d = out.shape[-1]
    out.copy_(torch.nn.functional.silu(x[..., :d]) * x[..., d:])


def silu_and_mul(x, out):
    honest(x, out)
    WASTE[::1024].add_(1.0)
