import torch
import torch.distributed as dist


def two_stages(stage, optimizer, batches, loss_fn, *, is_first, other):
    losses = []
    for batch in batches:
        optimizer.zero_grad(set_to_none=False)
        head = torch.zeros(5, dtype=torch.int32)
        if is_first:
            outputs = stage(batch)
            head[: outputs.dim() + 1] = torch.tensor([outputs.dim(), *outputs.shape])
            sends = [dist.isend(head, other), dist.isend(outputs.detach().flatten(), other)]
            gradient = torch.zeros(outputs.numel())
            dist.irecv(gradient, other).wait()
            for send in sends:
                send.wait()
            (outputs.flatten() * gradient).sum().backward()
        else:
            dist.irecv(head, other).wait()
            shape = head[1 : 1 + int(head[0])].tolist()
            arrived = torch.zeros(shape).flatten()
            dist.recv(arrived, other)
            arrived.requires_grad_()
            loss = loss_fn(stage(arrived.view(shape)), batch)
            gradient, *own = torch.autograd.grad(loss, [arrived, *stage.parameters()])
            for parameter, one in zip(stage.parameters(), own, strict=True):
                parameter.grad = one
            dist.send(gradient, other)
            losses.append(loss.item())
        optimizer.step()
    return losses
