def silu_and_mul(x, out):
    return x[..., : out.shape[-1]]
