"""Override points: a small function of a bundle fills a typed hole in a kernel of ours.

Invariants
1. The registered points are those of the catalog; this module says what each of them does. A row cannot bring a base.
2. `<entry>_ref(gate, up)` is required: torch code that a CPU can import, which the dense path runs. `<entry>`, the
   device function, may be absent where its compiler is.
3. What is composed has the signature of the slot's own entry and comes with a `prepare` of ours. The layout of weights,
   the outputs and everything around the hole stay ours.
4. There is no device base here. Whatever is not the dense path raises `NotImplementedError`, and an override is not
   measured on an arena with devices (`base_absent`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from config.target_catalog import OverridePoint, load_catalog

Loader = Callable[[str], Callable[..., Any] | None]
Composed = tuple[Callable[..., Any], Callable[..., Any]]

DENSE = "dense"
PROVENANCE = "__cacheon_override__"


def key_of(slot: str, point: str) -> str:
    """Return the name of an override point: "slot/point"."""
    return f"{slot}/{point}"


def find_point(slot: str, point: str) -> OverridePoint:
    """Return a registered override point. Raises `KeyError`, which names the known ones."""
    known = {key_of(one.slot, one.point): one for one in load_catalog().override_points}
    key = key_of(slot, point)
    if key not in known or key not in _BASES:
        raise KeyError(f"there is no override point {key}; known: {', '.join(sorted(known))}")
    return known[key]


def compose(slot: str, point: str, entry: str, load: Loader) -> Composed:
    """Return the (serving, load-time) pair of a row that fills a point with `entry`.

    `load(name)` gives a callable of the row's source, or None. Raises `KeyError` (no such point) and `ValueError` (the
    required reference is missing).
    """
    find_point(slot, point)
    reference = load(f"{entry}_ref")
    if reference is None:
        raise ValueError(f"{entry}_ref is missing: an override needs its torch form")
    serve, prepare = _BASES[key_of(slot, point)](reference, load(entry))
    setattr(serve, PROVENANCE, key_of(slot, point))
    return serve, prepare


def base_absent(slot: str, point: str, arena_kind: str) -> str:
    """Return why an override of this point cannot be measured on an arena of that kind; "" when it can."""
    if arena_kind == "cpu":
        return ""
    base = find_point(slot, point).base_kernel
    return f"{key_of(slot, point)} needs the {arena_kind.upper()} form of {base}, which this validator does not have"


def prepare_dense(w13: torch.Tensor, w2: torch.Tensor) -> dict[str, object]:
    """Return the dense layout of the weights `w13` (experts, 2 * inter, hidden) and `w2` (experts, hidden, inter)."""
    return {"fmt": DENSE, "w13": w13.contiguous(), "w2": w2.contiguous(), "inter": w13.shape[1] // 2}


def _gemm1_epilogue(reference: Callable[..., Any], device: Callable[..., Any] | None) -> Composed:
    """Compose the mixture of experts whose activation is the bundle's."""

    def fused_experts(
        x: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor, prepared: Any, out: torch.Tensor
    ) -> torch.Tensor:
        if not isinstance(prepared, dict) or prepared.get("fmt") != DENSE:
            _run_on_device(device)
        return _dense(reference, x, topk_ids, topk_weights, prepared, out)

    return fused_experts, prepare_dense


def _dense(
    reference: Callable[..., Any],
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    prepared: Mapping[str, Any],
    out: torch.Tensor,
) -> torch.Tensor:
    """Write sum over k of weight_k * (reference(gate, up) . w2[expert_k]) to `out`, in float32 until the end."""
    inter, rows = prepared["inter"], x.float()
    total = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for expert in torch.unique(topk_ids).tolist():
        token, choice = torch.nonzero(topk_ids == expert, as_tuple=True)
        both = rows[token] @ prepared["w13"][expert].float().T
        hidden = reference(both[:, :inter], both[:, inter:]).float()
        part = hidden @ prepared["w2"][expert].float().T
        total.index_add_(0, token, part * topk_weights[token, choice].float().unsqueeze(-1))
    out.copy_(total)
    return out


def _run_on_device(device: Callable[..., Any] | None) -> None:
    raise NotImplementedError(
        "this override needs the device form of its base kernel, which this validator does not have"
        + ("" if device is not None else "; the bundle brings no device function either")
    )


_BASES: Mapping[str, Callable[[Callable[..., Any], Callable[..., Any] | None], Composed]] = MappingProxyType(
    {"moe.fused_experts/gemm1_epilogue": _gemm1_epilogue}
)
