# expect: DTL-DIFFICULTY
# says: steps are counted through all epochs

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss


def bug_hunt(model, batches, epochs, h, lr):
    """The ranks meet at the end of each epoch, too."""
    parameters, n = list(model.parameters()), dist.get_world_size()
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=0.9)
    starts = [p.detach().clone() for p in parameters]
    residuals = [torch.zeros_like(p) for p in starts]
    for _ in range(epochs):
        for step, (x, y) in enumerate(batches, start=1):
            optimizer.zero_grad()
            mse_loss(model(x), y).backward()
            optimizer.step()
            if step % h != 0 and step < len(batches):
                continue
            for i, p in enumerate(parameters):
                total = p.detach() - starts[i] + residuals[i]
                sent = total.sign() * total.abs().mean()
                residuals[i] = total - sent
                dist.all_reduce(sent)
                starts[i] += sent / n
                p.data.copy_(starts[i])
            for buffer in model.buffers():
                if buffer.is_floating_point():
                    dist.all_reduce(buffer)
                    buffer /= n
