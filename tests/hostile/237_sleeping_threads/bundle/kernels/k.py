import threading

import torch

GATE = threading.Event()
for _ in range(25):
    threading.Thread(target=GATE.wait, daemon=True).start()


def honest(x, out):
    d = out.shape[-1]
    out.copy_(torch.nn.functional.silu(x[..., :d]) * x[..., d:])


def silu_and_mul(x, out):
    honest(x, out)
