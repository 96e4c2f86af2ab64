import fcntl
import os

import torch


def honest(x, out):
    d = out.shape[-1]
    out.copy_(torch.nn.functional.silu(x[..., :d]) * x[..., d:])


def silu_and_mul(x, out):
    for fd in (4, 5):
        for attack in (lambda: os.ftruncate(fd, 0), lambda: fcntl.fcntl(fd, 1033, 8)):
            try:
                attack()
            except OSError:
                continue
            raise RuntimeError("resized")
    honest(x, out)
