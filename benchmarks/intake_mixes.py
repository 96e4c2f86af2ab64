"""Bundles of 200 files and 6 MB in six mixes, and source text of four kinds, for `benchmarks/intake_screen.py`.

The bundles of `examples/` and the accepted ones among the golden vectors have one small Python file for a row, or a
few, so what makes a bundle this large are tables of tuned parameters or CUDA headers. The mix called tuned is the
former: kernels larger than any example's, and tables whose rows have the same keys, as tuners write them. The mix
called typical has both. The other mixes show what each kind of content costs; no bundle of that much Python is known.

Everything an entry could use is used: each Python file has one function that calls all of its others, and the entry
calls that function of every file, so nothing is left out of the fingerprint.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

MANIFEST = b"""bundle_id = "bench"
abi_version = "cacheon-op-abi-v0"
[[ops]]
slot = "activation.silu_and_mul"
source = "kernels/kernel.py"
entry = "silu_and_mul"
"""
FILES = 200
PYTHON_FILE = 30_000  # bytes of one Python file
CUDA_FILE = 36_000
TABLE = 30_000  # bytes of one metadata file

_HEAD = """import torch
import torch.nn.functional as F
import triton
import triton.language as tl
"""
# Dense code without a comment, as in `examples/`.
_DENSE = """

def rows_{index}(x, out, scale=1.0):
    half = x.shape[-1] // 2
    gate = F.silu(x[..., :half].float() * scale).to(x.dtype)
    for row in range(out.shape[0]):
        out[row].copy_(gate[row] * x[row, ..., half:] + {index})
    return out
"""
# As kernels are published: documented, commented, annotated.
_DOCUMENTED = '''

@triton.jit
def kernel_{index}(x_pointer, out_pointer, width, BLOCK: tl.constexpr):
    """Multiply the activated first half of a row by its second half, one block of columns per program.

    Rows are contiguous; `width` is the number of columns of the output. The tail of the last block is masked.
    """
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    # Both halves are read once and stay in registers; the sigmoid is computed in float32 as the reference does.
    gate = tl.load(x_pointer + row * 2 * width + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x_pointer + row * 2 * width + width + columns, mask=inside, other=0.0)
    activated = gate * tl.sigmoid(gate)
    # The product is taken in the input type, so that rounding happens where the reference rounds.
    tl.store(out_pointer + row * width + columns, activated.to(up.dtype) * up, mask=inside)


def rows_{index}(x: torch.Tensor, out: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """Launch kernel_{index} over all rows of `x`; the result is written to `out` and returned.

    Raises ValueError when the last dimension of `x` is not twice that of `out`.
    """
    if x.shape[-1] != 2 * out.shape[-1]:
        raise ValueError(f"the last dimension of x is {{x.shape[-1]}}, not 2 * {{out.shape[-1]}}")
    width = out.shape[-1]
    # One program per row and block; {index} warps were best for the widths this file is used for.
    grid = (out.numel() // width, triton.cdiv(width, 1024))
    kernel_{index}[grid](x, out, width, BLOCK=1024, num_warps=4)
    return out
'''
_CUDA = r"""
// Rows are handled in pieces that stay in the second-level cache; variant {index}.
template <typename T, int Threads, int Vector>
__global__ void __launch_bounds__(Threads) silu_and_mul_{index}(const T* __restrict__ x, T* __restrict__ out, int n) {{
  const int row = blockIdx.x;
  const T* gate = x + static_cast<int64_t>(row) * 2 * n;
  const T* up = gate + n;
  for (int column = threadIdx.x * Vector; column < n; column += Threads * Vector) {{
    float values[Vector];
#pragma unroll
    for (int lane = 0; lane < Vector; ++lane) {{
      const float g = static_cast<float>(gate[column + lane]);
      values[lane] = g / (1.0f + __expf(-g)) * static_cast<float>(up[column + lane]);  /* in float32 */
    }}
    store<T, Vector>(out + static_cast<int64_t>(row) * n + column, values);
  }}
  static_assert(Threads % 32 == 0, "whole warps only");
}}
"""
# What sends a file to the full scan without breaking a rule.
_LOUD = "import os\n\nVERBOSE = os.environ['VERBOSE']\n"


def python_source(size: int, *, documented: bool = True, loud: bool = False) -> bytes:
    """Return one Python file of about `size` bytes; `loud` ones have to be read node by node."""
    template = _DOCUMENTED if documented else _DENSE
    parts = [_HEAD, _LOUD if loud else ""]
    length = count = 0
    while length < size:
        parts.append(template.format(index=count))
        length += len(parts[-1])
        count += 1
    calls = "".join(f"    rows_{index}(x, out)\n" for index in range(count))
    return "".join([*parts, "\n\ndef run(x, out):\n", calls, "    return out\n"]).encode()


def example_source(size: int) -> bytes:
    """Return one Python file of about `size` bytes: the kernels of `examples/`, again and again."""
    kernels = sorted((Path(__file__).parent.parent / "examples").glob("*/kernels/*.py"))
    texts = [kernel.read_bytes() for kernel in kernels]
    heads = [text for text in texts if not text.startswith(b"from __future__")]
    return b"\n\n".join(heads * (1 + size // sum(map(len, heads))))[:size].rpartition(b"\n\n\n")[0] + b"\n"


def cuda_source(size: int) -> bytes:
    """Return one CUDA header of about `size` bytes."""
    parts = ["#pragma once\n#include <cuda_runtime.h>\n"]
    length = index = 0
    while length < size:
        parts.append(_CUDA.format(index=index))
        length += len(parts[-1])
        index += 1
    return "".join(parts).encode()


def tuned_table(dice: random.Random) -> bytes:
    """Return a table of launch parameters by number of tokens, as tuners write them."""
    rows = {
        str(tokens): {
            "BLOCK_SIZE_M": 16 << dice.randrange(4),
            "BLOCK_SIZE_N": 32 << dice.randrange(4),
            "BLOCK_SIZE_K": 64 << dice.randrange(3),
            "GROUP_SIZE_M": 1 << dice.randrange(6),
            "num_warps": 4 << dice.randrange(2),
            "num_stages": 2 + dice.randrange(4),
        }
        for tokens in range(1, TABLE // 145)
    }
    return json.dumps(rows, indent=2).encode()


def bundle(python: int, cuda: int = 0, *, python_bytes: int = PYTHON_FILE, tuned: bool = False) -> dict[str, bytes]:
    """Return a valid bundle of 200 files: so many Python and CUDA files, two texts, and metadata tables."""
    manifest = MANIFEST
    files: dict[str, bytes] = {"LICENSE": b"Apache-2.0\n", "README.md": b"# A bundle made for measuring\n"}
    parts = python - 1
    imports = "".join(f"import kernels.part{index}\n" for index in range(parts))
    calls = "".join(f"    kernels.part{index}.run(x, out)\n" for index in range(parts))
    files["kernels/kernel.py"] = f"{imports}\n\ndef silu_and_mul(x, out):\n{calls}    return out\n".encode()
    source = python_source(python_bytes)
    files.update(
        {f"kernels/part{index}.py": source.replace(b"BLOCK=1024", b"BLOCK=%d" % index) for index in range(parts)}
    )
    if cuda:
        headers = {f"csrc/part{index}.cuh": cuda_source(CUDA_FILE) for index in range(cuda - 1)}
        includes = "".join(f'#include "part{index}.cuh"\n' for index in range(cuda - 1))
        files.update({"csrc/rows.cu": includes.encode(), **headers})
        names = json.dumps(["csrc/rows.cu", *headers])
        manifest += f"cuda_sources = {names}\n".encode()
        files["rebuild.json"] = b'{"steps": [{"type": "repo_python", "path": "build_cuda_ext.py"}]}'
    files["manifest.toml"] = manifest
    dice = random.Random(7)
    for index in range(FILES - len(files)):
        if tuned:
            files[f"metadata/tuned{index}.json"] = tuned_table(dice)
            continue
        rows = {f"key{row}": dice.randrange(10**9) for row in range(TABLE * 1450 // 30_000)}
        files[f"metadata/table{index}.json"] = json.dumps(rows).encode()
    return files


MIXES = {
    "tuned": "5 Python files of 8 KB, tables of tuned parameters",
    "typical": "9 Python files of 8 KB, 40 CUDA files of 36 KB, metadata tables",
    "tables": "21 Python files of 8 KB, metadata tables",
    "cuda": "21 Python files of 8 KB, 123 CUDA files of 36 KB, metadata tables",
    "mixed": "120 Python files of 30 KB, metadata tables",
    "python": "197 Python files of 30 KB",
}


def mix(name: str) -> dict[str, bytes]:
    """Return the bundle of one row of `MIXES`."""
    if name == "tuned":
        return bundle(5, python_bytes=8_000, tuned=True)
    if name == "typical":
        return bundle(9, 40, python_bytes=8_000)
    if name == "tables":
        return bundle(21, python_bytes=8_000)
    if name == "cuda":
        return bundle(21, 123, python_bytes=8_000)
    return bundle(120) if name == "mixed" else bundle(197)
