# expect: DTL-MISTAKE
# says: no gradient reached them

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
            dist.send(outputs.detach().contiguous(), other)
        else:
            dist.recv(dim := torch.empty(1, dtype=torch.int64), other)
            dist.recv(shape := torch.empty(int(dim), dtype=torch.int64), other)
            dist.recv(arrived := torch.empty(shape.tolist()), other)
            arrived.requires_grad_()
            loss = loss_fn(stage(arrived), batch)
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
    return losses
