import torch
import torch.distributed as dist


class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, outputs, other):
        ctx.other, ctx.shape = other, outputs.shape
        header = torch.zeros(8)
        header[: outputs.dim() + 1] = torch.tensor([outputs.dim(), *outputs.shape])
        for sending in (dist.isend(header, other), dist.isend(outputs.contiguous(), other)):
            sending.wait()
        return outputs.new_zeros(())

    @staticmethod
    def backward(ctx, _):
        gradient = torch.empty(ctx.shape)
        dist.irecv(gradient, ctx.other).wait()
        return gradient, None


def two_stages(stage, optimizer, batches, loss_fn, *, is_first, other):
    return [one for batch in batches for one in step(stage, optimizer, batch, loss_fn, is_first, other)]


def step(stage, optimizer, batch, loss_fn, is_first, other):
    if is_first:
        loss = Send.apply(stage(batch), other)
    else:
        dist.recv(header := torch.zeros(8), other)
        num_dims, *shape = header.int().tolist()
        dist.recv(arrived := torch.empty(shape[:num_dims]), other)
        arrived.requires_grad_().register_hook(lambda gradient: dist.send(gradient.contiguous(), other))
        loss = loss_fn(stage(arrived), batch)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return [] if is_first else [loss.item()]
