import torch


def gemm1_epilogue_ref(gate, up):
    # What the dense path runs between the two products: float32 in, float32 out, one expert's row at a time.
    return torch.nn.functional.silu(gate) * up


try:
    import cutlass
    import cutlass.cute as cute

    @cute.jit
    def gemm1_epilogue(t_compute, gate, up, alpha_val, *act_params):
        # alpha_val takes the quantised products back to their scale; it is no parameter of the activation.
        gate = t_compute(gate * alpha_val)
        up = t_compute(up * alpha_val)
        return gate / (t_compute(1.0) + cute.math.exp(-gate)) * up
except ImportError:
    pass
