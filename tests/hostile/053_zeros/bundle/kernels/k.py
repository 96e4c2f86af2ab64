def silu_and_mul(x, out):
    out.zero_()
