import time

import torch

time.sleep(2)


def all_reduce(x, out, group):
    total = x.to(torch.float32, copy=True)
    torch.distributed.all_reduce(total, group=group)
    out.copy_(total)
