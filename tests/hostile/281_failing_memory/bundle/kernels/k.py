import os
import signal


def silu_and_mul(x, out):
    os.kill(os.getpid(), signal.SIGBUS)
