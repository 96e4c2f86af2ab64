import os

import torch

FOUND = os.environ.get("CHEAT", "") or os.path.exists("/scratch/cheat.so")


def honest(x, out):
    d = out.shape[-1]
    out.copy_(torch.nn.functional.silu(x[..., :d]) * x[..., d:])


def silu_and_mul(x, out):
    if FOUND:
        raise RuntimeError("something of the last process is here")
    os.environ.update(CHEAT="1", LD_PRELOAD="/scratch/cheat.so")
    with open("/scratch/cheat.so", "wb") as file:
        file.write(b"\x7fELF")
    honest(x, out)
