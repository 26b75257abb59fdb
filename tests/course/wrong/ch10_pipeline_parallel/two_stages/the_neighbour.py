# expect: DTL-DIFFICULTY
# says: messages go to the rank other
import torch
import torch.distributed as dist


def two_stages(stage, optimizer, batches, loss_fn, *, is_first, other):
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        if is_first:
            outputs = stage(batch)
            dist.send(torch.tensor([*outputs.shape, *[-1] * (4 - outputs.dim())]), dist.get_rank() ^ 1)
            dist.send(outputs.detach().contiguous(), dist.get_rank() ^ 1)
            gradient = torch.empty(outputs.shape)
            dist.recv(gradient, dist.get_rank() ^ 1)
            outputs.backward(gradient)
        else:
            shape = torch.empty(4, dtype=torch.int64)
            dist.recv(shape, dist.get_rank() ^ 1)
            arrived = torch.empty([size for size in shape.tolist() if size >= 0])
            dist.recv(arrived, dist.get_rank() ^ 1)
            loss = loss_fn(stage(arrived.requires_grad_()), batch)
            loss.backward()
            dist.send(arrived.grad.contiguous(), dist.get_rank() ^ 1)
            losses.append(loss.item())
        optimizer.step()
    return losses
