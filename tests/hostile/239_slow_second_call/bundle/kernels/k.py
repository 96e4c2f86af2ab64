import time

import torch

SEEN = []


def honest(x, out):
    d = out.shape[-1]
    out.copy_(torch.nn.functional.silu(x[..., :d]) * x[..., d:])


def silu_and_mul(x, out):
    SEEN.append(out.shape)
    if SEEN.count((64, 1024)) == 2:
        time.sleep(1.2)
    honest(x, out)
