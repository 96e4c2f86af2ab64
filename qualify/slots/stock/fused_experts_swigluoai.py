"""The stock form of moe.fused_experts for models with the clamped activation, expert by expert.

It is loaded into arms by the same loader, along the same path, as the source of a bundle.
"""

import torch


def prepare(w13, w2):  # type: ignore[no-untyped-def]
    return w13.contiguous(), w2.contiguous()


def fused_experts(x, topk_ids, topk_weights, prepared, out):  # type: ignore[no-untyped-def]
    w13, w2 = prepared
    total = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for expert in topk_ids.unique().tolist():
        token, choice = torch.nonzero(topk_ids == expert, as_tuple=True)
        gate, up = torch.nn.functional.linear(x[token], w13[expert]).chunk(2, dim=-1)
        gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
        hidden = gate * torch.sigmoid(1.702 * gate) * (up + 1.0)
        part = torch.nn.functional.linear(hidden, w2[expert]).float()
        total.index_add_(0, token, part * topk_weights[token, choice].unsqueeze(-1))
    out.copy_(total)
