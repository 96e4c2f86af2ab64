import torch


def _sum(part, group):
    """Return the sum of `part` over the ranks in float32; parts travel in their own dtype."""
    ranks = torch.distributed.get_world_size(group)
    parts = torch.empty((ranks * part.shape[0], part.shape[1]), dtype=part.dtype, device=part.device)
    torch.distributed.all_gather_into_tensor(parts, part, group=group)
    return parts.view(ranks, *part.shape).sum(dim=0, dtype=torch.float32)


def _finish(total, residual, weight, eps, out_norm, out_residual):
    total += residual
    out_residual.copy_(total)
    scale = torch.linalg.vector_norm(total, dim=-1, keepdim=True).square_().div_(total.shape[-1]).add_(eps).rsqrt_()
    out_norm.copy_(total.mul_(scale).mul_(weight))


def ar_residual_rmsnorm(x, residual, weight, eps, out_norm, out_residual, group):
    _finish(_sum(x, group), residual, weight, eps, out_norm, out_residual)


def moe_finalize_ar_rmsnorm(gemm_out, row_map, scales, residual, weight, eps, out_norm, out_residual, group):
    tokens, padded = residual.shape[0], scales.shape[0]
    # Choice k of token t stands in row row_map[t + k * padded]. Tokens behind the last real one are not looked at.
    routes = row_map.view(-1, padded)[:, :tokens].T.long()
    rows = gemm_out[routes].float()
    own = torch.bmm(scales[:tokens].unsqueeze(1), rows).squeeze(1).to(residual.dtype)
    _finish(_sum(own, group), residual, weight, eps, out_norm, out_residual)
