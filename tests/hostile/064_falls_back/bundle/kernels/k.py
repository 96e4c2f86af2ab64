import torch


def honest(x, out):
    d = out.shape[-1]
    out.copy_(torch.nn.functional.silu(x[..., :d]) * x[..., d:])


def silu_and_mul(x, out):
    try:
        torch.ops.nobody.silu_and_mul(x, out)
    except AttributeError:
        honest(x, out)
