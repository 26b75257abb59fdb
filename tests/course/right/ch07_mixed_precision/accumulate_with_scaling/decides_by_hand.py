import torch
import torch.distributed as dist


def accumulate_with_scaling(model, micro_batches, scaler, optimizer, max_norm):
    """Averages by hand at the end, and gives the scaler the decision."""
    model.zero_grad()
    with model.no_sync():
        for x, y in micro_batches:
            out = model(x)
            scale = scaler.scale(torch.ones(())).item()
            out.backward(scale * 2 * (out.detach() - y) / (y.numel() * len(micro_batches)))
    flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    parts = flat.split([parameter.numel() for parameter in model.parameters()])
    for parameter, part in zip(model.parameters(), parts, strict=True):
        parameter.grad.copy_(part.view_as(parameter))
    scaler.unscale_(optimizer)
    norm = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm()
    for parameter in model.parameters():
        parameter.grad *= (max_norm / norm).clamp(max=1)
    if norm.isfinite():
        optimizer.step()
    scaler.update()
