import torch


def honest(x, out):
    d = out.shape[-1]
    out.copy_(torch.nn.functional.silu(x[..., :d]) * x[..., d:])


def silu_and_mul(x, out):
    honest(x, out)
    whole = x.untyped_storage()
    torch.empty(0, dtype=torch.uint8).set_(whole)[:4096].sum()
