"""The stock form of attention.msa_prefill_block_score: one product, a causal mask, and a maximum over blocks.

It is loaded into arms by the same loader, along the same path, as the source of a bundle.
"""

import torch


def msa_prefill_block_score(q, index_k, prefix_len, scale, block_size, out):  # type: ignore[no-untyped-def]
    scores = torch.mm(q.float(), index_k.float().T).mul_(scale)
    rows, keys = scores.shape
    position = torch.arange(keys, device=q.device)
    last = prefix_len + torch.arange(rows, device=q.device)
    scores.masked_fill_(position[None, :] > last[:, None], float("-inf"))
    padded = torch.nn.functional.pad(scores, (0, out.shape[1] * block_size - keys), value=float("-inf"))
    out.copy_(padded.view(rows, -1, block_size).amax(dim=-1))
