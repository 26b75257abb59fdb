# expect: DTL-P2P-SIZE
# says: the outputs have 1 to 4 dimensions
import torch
import torch.distributed as dist


def two_stages(stage, optimizer, batches, loss_fn, *, is_first, other):
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        if is_first:
            outputs = stage(batch)
            dist.send(torch.tensor([*outputs.shape, *[-1] * (2 - outputs.dim())]), other)
            dist.send(outputs.detach().contiguous(), other)
            gradient = torch.empty(outputs.shape)
            dist.recv(gradient, other)
            outputs.backward(gradient)
        else:
            shape = torch.empty(2, dtype=torch.int64)
            dist.recv(shape, other)
            arrived = torch.empty([size for size in shape.tolist() if size >= 0])
            dist.recv(arrived, other)
            loss = loss_fn(stage(arrived.requires_grad_()), batch)
            loss.backward()
            dist.send(arrived.grad.contiguous(), other)
            losses.append(loss.item())
        optimizer.step()
    return losses
