import torch


def rmsnorm(x, weight, out, eps):
    torch.mul(x, weight, out=out)
