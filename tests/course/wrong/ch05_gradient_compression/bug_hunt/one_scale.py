# expect: DTL-MISTAKE
# says: one scale together

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def bug_hunt(model, batches, epochs, h, lr):
    """One scale for all parameters together."""
    parameters, n, step = list(model.parameters()), dist.get_world_size(), 0
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=0.9)
    start = parameters_to_vector(parameters).detach().clone()
    residual = torch.zeros_like(start)
    for _ in range(epochs):
        for x, y in batches:
            optimizer.zero_grad()
            mse_loss(model(x), y).backward()
            optimizer.step()
            step += 1
            if step % h == 0:
                total = parameters_to_vector(parameters).detach() - start + residual
                sent = total.sign() * total.abs().mean()
                residual = total - sent
                dist.all_reduce(sent)
                start = start + sent / n
                vector_to_parameters(start.clone(), parameters)
                for buffer in model.buffers():
                    if buffer.is_floating_point():
                        dist.all_reduce(buffer)
                        buffer /= n
