import torch


def msa_block_score(q, index_k, seq_lens, block_size, out):
    # The heads are added in float32; what remains is one query for each sequence.
    query = q.float().sum(dim=1)
    out.fill_(float("-inf"))
    for row, length in enumerate(seq_lens.tolist()):
        # Keys behind the end are not read, and those before it need no mask: only the last block is short.
        scores = torch.mv(index_k[row, :length, 0].float(), query[row])
        whole = length // block_size
        out[row, :whole] = scores[: whole * block_size].view(whole, block_size).amax(dim=-1)
        if whole * block_size < length and whole < out.shape[1]:
            out[row, whole] = scores[whole * block_size :].amax()
