import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss


def bug_hunt(model, batches, lr, gamma, max_norm, scale):
    """With torch's scaler, which never grows here, and a rate by hand; the ranks' flags are summed."""
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=10**6)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    scales = []
    for x, y in batches:
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(x)
        scaler.scale(mse_loss(out.float(), y)).backward()
        flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        dist.all_reduce(flat)
        parts = (flat / dist.get_world_size()).split([parameter.numel() for parameter in model.parameters()])
        for parameter, part in zip(model.parameters(), parts, strict=True):
            parameter.grad = part.view_as(parameter).clone()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        scaler.step(optimizer)
        scaler.update()
        if norm.isfinite():
            optimizer.param_groups[0]["lr"] *= gamma
        scales.append(scaler.get_scale())
    return scales
