import time

import torch


def honest(x, out):
    d = out.shape[-1]
    out.copy_(torch.nn.functional.silu(x[..., :d]) * x[..., d:])


SEEN = [0]


def silu_and_mul(x, out):
    SEEN[0] += 1
    if SEEN[0] == 1:
        time.sleep(0.02)
    honest(x, out)
