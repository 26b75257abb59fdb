import itertools

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def bug_hunt(model, batches, epochs, h, lr):
    """One message a meeting for all parameters, and momentum by hand."""
    sizes = [p.numel() for p in model.parameters()]
    start = parameters_to_vector(model.parameters()).detach().clone()
    residual = torch.zeros_like(start)
    momentum = torch.zeros_like(start)
    data = itertools.chain.from_iterable(itertools.repeat(batches, epochs))
    for number, (x, y) in enumerate(data, 1):
        gradients = torch.autograd.grad(mse_loss(model(x), y), list(model.parameters()))
        momentum = 0.9 * momentum + parameters_to_vector(gradients)
        now = parameters_to_vector(model.parameters()).detach() - lr * momentum
        if number % h == 0:
            wanted = residual + now - start
            scales = torch.cat([part.abs().mean().expand(len(part)) for part in wanted.split(sizes)])
            sent = torch.where(wanted < 0, -scales, scales).where(wanted != 0, 0.0)
            residual = wanted - sent
            dist.all_reduce(sent)
            now = start = start + sent / dist.get_world_size()
            for name, buffer in model.named_buffers():
                if not name.endswith("num_batches_tracked"):
                    dist.all_reduce(buffer)
                    buffer /= dist.get_world_size()
        vector_to_parameters(now.clone(), model.parameters())
