# expect: DTL-VALUE
# says: one dimension
import torch
import torch.distributed as dist
import torch.nn.functional as F


def two_stages(stage, optimizer, batches, loss_fn, *, is_first, other):
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        if is_first:
            outputs = stage(batch)
            dist.send(torch.tensor([*outputs.shape, *[-1] * (4 - outputs.dim())]), other)
            dist.send(outputs.detach().contiguous(), other)
            gradient = torch.empty(outputs.shape)
            dist.recv(gradient, other)
            outputs.backward(gradient)
        else:
            shape = torch.empty(4, dtype=torch.int64)
            dist.recv(shape, other)
            arrived = torch.empty([size for size in shape.tolist() if size >= 0])
            dist.recv(arrived, other)
            arrived.requires_grad_()
            made = stage(arrived)
            if batch.is_floating_point():
                loss = F.mse_loss(made, batch)
            else:
                loss = F.cross_entropy(made.flatten(0, 1), batch.flatten())
            loss.backward()
            dist.send(arrived.grad.contiguous(), other)
            losses.append(loss.item())
        optimizer.step()
    return losses
