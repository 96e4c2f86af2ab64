def silu_and_mul(x, out):
    pass
