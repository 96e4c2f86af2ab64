import os


def silu_and_mul(x, out):
    os._exit(70)
