import torch


def silu_and_mul(x, out):
    width = out.shape[-1]
    for start in range(0, x.shape[0], 32):
        piece = x[start : start + 32].double()
        gate, up = piece[:, :width], piece[:, width:]
        weight = 1.0 / (1.0 + torch.exp(-gate))
        out[start : start + 32].copy_(gate * weight * up)
