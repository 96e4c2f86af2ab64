import torch


def silu_and_mul(x, out):
    d = out.shape[-1]
    gate = x[..., :d].to(torch.float8_e4m3fn).float()
    out.copy_(torch.nn.functional.silu(gate) * x[..., d:].float())
