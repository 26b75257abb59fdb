# expect: DTL-DIFFICULTY
# says: the momentum of the rounds before is what is in `buffers`

import torch
import torch.distributed as dist

velocities = []


@torch.no_grad()
def outer_step(parameters, old, buffers, lr, momentum, *, group=None):
    """It reads `buffers` in the first round only, and remembers what it has written there."""
    velocities.extend(buffer.clone() for buffer in buffers[len(velocities) :])
    flat = torch.cat([(o - p).flatten() for p, o in zip(parameters, old, strict=True)])
    dist.all_reduce(flat, group=group)
    pieces = (flat / dist.get_world_size(group)).split([o.numel() for o in old])
    for p, o, buffer, velocity, piece in zip(parameters, old, buffers, velocities, pieces, strict=True):
        velocity.copy_(momentum * velocity + piece.view_as(o))
        buffer.copy_(velocity)
        o -= lr * (piece.view_as(o) + momentum * velocity)
        p.copy_(o)
