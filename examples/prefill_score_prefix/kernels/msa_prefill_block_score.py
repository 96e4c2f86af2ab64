import torch


def msa_prefill_block_score(q, index_k, prefix_len, scale, block_size, out):
    rows, keys = q.shape[0], index_k.shape[0]
    query = q.float() * scale
    # Every row sees the whole blocks of the prefix: no mask, no padding, and the scores of one piece stay in the cache.
    seen = prefix_len // block_size
    step = max(1, 65536 // (rows * block_size))
    for start in range(0, seen, step):
        stop = min(start + step, seen)
        piece = index_k[start * block_size : stop * block_size].float()
        scores = torch.mm(query, piece.T)
        torch.amax(scores.view(rows, stop - start, block_size), dim=-1, out=out[:, start:stop])
    tail = torch.mm(query, index_k[seen * block_size :].float().T)
    last = torch.arange(prefix_len, prefix_len + rows)
    tail.masked_fill_(torch.arange(seen * block_size, keys)[None, :] > last[:, None], float("-inf"))
    for block in range(seen, out.shape[1]):
        first = (block - seen) * block_size
        torch.amax(tail[:, first : first + block_size], dim=-1, out=out[:, block])
