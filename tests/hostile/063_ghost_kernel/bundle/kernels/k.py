import torch


def honest(x, out):
    d = out.shape[-1]
    out.copy_(torch.nn.functional.silu(x[..., :d]) * x[..., d:])


def clever(x, out):
    d = out.shape[-1]
    gate = x[..., :d]
    out.copy_(gate * torch.sigmoid(gate) * x[..., d:])


def silu_and_mul(x, out):
    if x.shape[-1] < 0:
        clever(x, out)
    else:
        honest(x, out)
