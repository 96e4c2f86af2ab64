import torch


def prepare(w13, w2):
    # One entry for each expert, so that a call does no indexing.
    return [(both.T, down.T) for both, down in zip(w13, w2)]


def fused_experts_reduce(x, topk_ids, topk_weights, prepared, out, group):
    choices, inter = topk_ids.shape[1], prepared[0][1].shape[0]
    chosen = topk_ids.flatten()
    # One sort puts the routes of every expert next to each other: one gather, and slices from there on.
    order = torch.argsort(chosen)
    counts = torch.bincount(chosen, minlength=len(prepared)).tolist()
    rows = x[order // choices]
    parts = torch.empty(rows.shape, dtype=x.dtype)
    for (first, second), part, piece in zip(prepared, parts.split(counts), rows.split(counts)):
        if len(piece):
            both = torch.mm(piece, first)
            gate = torch.nn.functional.silu(both[:, :inter])
            torch.mm(gate.mul_(both[:, inter:]), second, out=part)
    # Back in the order of the tokens, the weighted sum over the choices is one product for each token.
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order))
    byrow = parts[back].view(*topk_ids.shape, -1).float()
    total = torch.bmm(topk_weights.unsqueeze(1), byrow).squeeze(1)
    torch.distributed.all_reduce(total, group=group)
    out.copy_(total)
