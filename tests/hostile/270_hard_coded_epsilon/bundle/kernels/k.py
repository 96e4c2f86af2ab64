import torch


def rmsnorm(x, weight, out, eps):
    wide = x.float()
    out.copy_(wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6) * weight.float())
