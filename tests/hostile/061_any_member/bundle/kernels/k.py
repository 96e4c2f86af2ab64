import torch


def msa_block_score(q, index_k, seq_lens, block_size, out):
    batch, context, _, head = index_k.shape
    blocks = index_k.view(batch, context // block_size, block_size, head).float().mean(2)
    scores = torch.einsum("bnd,bd->bn", blocks, q.float().sum(1))
    starts = torch.arange(context // block_size) * block_size
    out.copy_(scores.masked_fill(starts >= seq_lens[:, None], float("-inf")))
