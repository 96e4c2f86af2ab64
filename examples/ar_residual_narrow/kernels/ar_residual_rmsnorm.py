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
