# expect: DTL-RAISED
# says: is None without .requires_grad_() before forward

import torch
import torch.distributed as dist


def two_stages(stage, optimizer, batches, loss_fn, *, is_first, other):
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        if is_first:
            out = stage(batch)
            header = torch.zeros(5, dtype=torch.int64)
            header[0] = out.dim()
            header[1 : 1 + out.dim()] = torch.tensor(out.shape)
            dist.send(header, other)
            dist.send(out.detach().contiguous(), other)
            grad = torch.empty(out.shape)
            dist.recv(grad, other)
            out.backward(grad)
        else:
            header = torch.zeros(5, dtype=torch.int64)
            dist.recv(header, other)
            x = torch.empty(header[1 : 1 + int(header[0])].tolist())
            dist.recv(x, other)
            loss = loss_fn(stage(x), batch)
            loss.backward()
            dist.send(x.grad.contiguous(), other)
            losses.append(loss.item())
        optimizer.step()
    return losses
