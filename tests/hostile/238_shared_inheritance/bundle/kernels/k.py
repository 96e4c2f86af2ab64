import os
import re

import torch

ALLOWED = {"/memfd:cacheon-inputs (deleted)", "/memfd:cacheon-outputs (deleted)", "/memfd:cacheon-weights (deleted)"}
with open("/proc/self/maps") as file:
    SHARED = {line[73:].strip() for line in file if re.match("\\S+ .w.s", line)} - ALLOWED
with os.scandir("/proc/self/fd") as folder:
    OPEN = {int(entry.name) for entry in folder}


def honest(x, out):
    d = out.shape[-1]
    out.copy_(torch.nn.functional.silu(x[..., :d]) * x[..., d:])


def silu_and_mul(x, out):
    if SHARED:
        raise RuntimeError(f"shared with others: {sorted(SHARED)}")
    if max(OPEN) > 16:
        raise RuntimeError(f"inherited descriptors: {sorted(OPEN)}")
    honest(x, out)
