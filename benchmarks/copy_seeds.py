"""Different kernels of one slot, in torch, in Triton and in CUDA, for the measurement of the copy rule."""

from __future__ import annotations

from typing import NamedTuple


class CudaSeed(NamedTuple):
    """One unit, the names that it declares, and replacements that change its work."""

    text: str
    words: tuple[str, ...]
    changes: tuple[tuple[str, str], ...]


_HELPER = """import torch


def _half(a, b):
    total = a * torch.sigmoid(a)
    return total * b + a * 0


def silu_and_mul(x, out):
    d = x.shape[-1] // 2
    BODY
"""
_BODIES = (
    "gate = _half(x[..., :d].float(), 1.0)\n    out.copy_(gate.to(x.dtype) * x[..., d:] + d)",
    "gate = x[..., :d].float()\n    part = _half(gate, 1.0)\n    out.copy_(part * x[..., d:])",
    "gate, up = x.split(d, dim=-1)\n    torch.mul(_half(gate, 2.0), up, out=out)",
    "for row in range(x.shape[0]):\n        out[row].copy_(_half(x[row, :d], 1.5) * x[row, d:])",
    "gate = x[..., :d]\n    gate = gate / (torch.exp(-gate) + 1)\n    out.copy_(gate + _half(x[..., d:], 0.5))",
)
_TRITON = """import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(x_ptr, out_ptr, d, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < d
    gate = tl.load(x_ptr + row * 2 * d + at, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * 2 * d + d + at, mask=mask, other=0.0)
    WORK
    tl.store(out_ptr + row * d + at, value, mask=mask)


def silu_and_mul(x, out):
    d = out.shape[-1]
    rows = out.numel() // d
    block = triton.next_power_of_2(min(d, 4096))
    _kernel[(rows, triton.cdiv(d, block))](x, out, d, BLOCK=block, num_warps=8)
"""
_WORKS = (
    "value = gate * tl.sigmoid(gate) * up",
    "value = gate / (1.0 + tl.exp(-gate)) * up",
    "value = gate\n    for step in range(3):\n        value += tl.sigmoid(value) * 0.5\n    value = value * up",
)
PYTHON_SEEDS = (
    *(_HELPER.replace("BODY", body) for body in _BODIES),
    *(_TRITON.replace("WORK", work) for work in _WORKS),
)

HEADER = "#pragma once\n#define HALF(a) (0.5f * (a))\n"
SHIM = "import {unit}\n\n\ndef silu_and_mul(x, out):\n    {unit}.run(x, out, {size})\n"
_PLAIN = """#include "h.cuh"

__global__ void silu(const float* rows, float* out, int d) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < d) { float g = rows[i]; out[i] = HALF(g) / (1.0f + expf(-g)) * rows[i + d]; }
}

void run(const float* data, float* result, int size) {
  silu<<<size / 256, 256>>>(data, result, size);
}
"""
_VECTOR = """#include "h.cuh"
#include <cuda_fp16.h>

template <typename T>
struct Pack { T lane[4]; };

__device__ __forceinline__ float activate(float value) { return value * __frcp_rn(1.0f + __expf(-value)); }

template <typename T>
__global__ void silu(const T* __restrict__ source, T* target, int width) {
  extern __shared__ float scratch[];
  const Pack<T>* packs = reinterpret_cast<const Pack<T>*>(source);
  for (int at = threadIdx.x, end = width / 4; at < end; at += blockDim.x) {
    Pack<T> left = packs[at], right = packs[at + end];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float gate = activate(static_cast<float>(left.lane[k]));
      target[at * 4 + k] = static_cast<T>(HALF(gate) * static_cast<float>(right.lane[k]));
    }
  }
}

void run(const float* data, float* result, int size) {
  silu<float><<<size / 256, 256, 1024>>>(data, result, size);
}
"""
_REDUCE = """#include "h.cuh"

constexpr int THREADS = 128;

__device__ float total(float mine) {
  for (int step = 16; step > 0; step >>= 1) mine += __shfl_xor_sync(0xffffffff, mine, step);
  return mine;
}

__global__ void norm(const float* rows, float* target, int width, float eps) {
  float sum = 0.0f;
  for (int i = threadIdx.x; i < width; i += THREADS) sum += rows[i] * rows[i];
  sum = total(sum);
  float scale = rsqrtf(HALF(sum) / width + eps);
  for (int i = threadIdx.x; i < width; i += THREADS) target[i] = rows[i] * scale;
}

void run(const float* data, float* result, int size) {
  norm<<<size, THREADS>>>(data, result, size, 1e-5f);
}
"""
_COMMON = ("run", "data", "result", "size")
CUDA_SEEDS = (
    CudaSeed(
        _PLAIN,
        ("silu", "rows", "out", "d", "i", "g", *_COMMON),
        (
            ("1.0f", "2.0f"),
            ("expf", "exp2f"),
            ("i + d", "i - d"),
            ("i < d", "i <= d"),
            ("* rows[", "+ rows["),
            ("256>", "128>"),
        ),
    ),
    CudaSeed(
        _VECTOR,
        (
            "Pack",
            "lane",
            "activate",
            "value",
            "silu",
            "T",
            "source",
            "target",
            "width",
            "packs",
            "at",
            "end",
            "left",
            "right",
            "k",
            "gate",
            "scratch",
            *_COMMON,
        ),
        (
            ("left.lane[k]", "right.lane[k]"),
            ("* 4 + k", "+ 4 * k"),
            ("__frcp_rn", "__frcp_rz"),
            ("1024", "2048"),
            ("#pragma unroll\n", ""),
            ("at += blockDim", "at += gridDim"),
        ),
    ),
    CudaSeed(
        _REDUCE,
        ("THREADS", "total", "mine", "step", "norm", "rows", "target", "width", "eps", "sum", "i", "scale", *_COMMON),
        (
            ("128", "256"),
            ("step = 16", "step = 8"),
            ("rsqrtf", "sqrtf"),
            ("rows[i] * rows[i]", "rows[i]"),
            ("mine += ", "mine -= "),
            ("+ eps", "* eps"),
        ),
    ),
)
