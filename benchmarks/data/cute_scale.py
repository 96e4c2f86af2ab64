"""A small CuTe kernel for `benchmarks/sandbox_compile.py`: out = factor * x, bfloat16, eight elements a thread."""

import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import make_fake_stream, make_ptr

THREADS = 128
WIDTH = 8


@cute.kernel
def scale_kernel(source: cute.Pointer, target: cute.Pointer, count: cutlass.Int32, factor: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    vector = block * THREADS + thread
    layout = cute.make_layout((count, WIDTH), stride=(WIDTH, 1))
    if vector < count:
        values = cute.make_tensor(source, layout)[vector, None].load().to(cutlass.Float32)
        cute.make_tensor(target, layout)[vector, None].store((values * factor).to(cutlass.BFloat16))


@cute.jit
def scale(source: cute.Pointer, target: cute.Pointer, count: cutlass.Int32, stream, factor: cutlass.Constexpr):
    blocks = (count + THREADS - 1) // THREADS
    scale_kernel(source, target, count, factor).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1], stream=stream)


def factory():
    """Return the function and its arguments; nothing touches a device."""
    pointer = make_ptr(cutlass.BFloat16, 16, cute.AddressSpace.gmem, assumed_align=16)
    return scale, (pointer, pointer, cutlass.Int32(1), make_fake_stream(), 2.0)
