"""A kernel that is entirely my own idea."""

import torch

CHUNK = 1 << 20  # bytes handled at a time


def gated_activation(hidden, destination):
    """Gate and multiply."""
    flat = hidden.reshape(
        -1,
        hidden.shape[-1],
    )
    written = destination.view(
        -1,
        destination.shape[-1],
    )
    half = written.shape[-1]

    stride = max(1, CHUNK // (3 * half * hidden.element_size()))
    for begin in range(0, flat.shape[0], stride):
        part = flat[begin : begin + stride]
        goal = written[begin : begin + stride]
        # first the activation
        torch.ops.aten.silu.out(part[:, :half], out=goal)
        # then the product
        goal.mul_(part[:, half:])
