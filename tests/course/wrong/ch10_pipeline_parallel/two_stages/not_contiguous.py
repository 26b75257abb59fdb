# expect: DTL-RAISED
# says: has to be contiguous
# says: which the outputs may not be

import torch
import torch.distributed as dist


def two_stages(stage, optimizer, batches, loss_fn, *, is_first, other):
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        if is_first:
            outputs = stage(batch)
            dist.send(torch.tensor([outputs.dim()]), other)
            dist.send(torch.tensor(outputs.shape), other)
            dist.send(outputs.detach(), other)
            gradient = torch.empty(outputs.shape)
            dist.recv(gradient, other)
            outputs.backward(gradient)
        else:
            dist.recv(dim := torch.empty(1, dtype=torch.int64), other)
            dist.recv(shape := torch.empty(int(dim), dtype=torch.int64), other)
            dist.recv(arrived := torch.empty(shape.tolist()), other)
            arrived.requires_grad_()
            loss = loss_fn(stage(arrived), batch)
            loss.backward()
            dist.send(arrived.grad.contiguous(), other)
            losses.append(loss.item())
        optimizer.step()
    return losses
