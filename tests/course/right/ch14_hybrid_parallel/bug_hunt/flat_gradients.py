import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def bug_hunt(stage, groups, split, partial, tied, batches, lr, max_norm):
    """Gradients as one vector, the optimizer by hand, and messages that wait for each other in no order."""
    stages, at = groups["pp"].size(), groups["pp"].rank()
    named = list(stage.named_parameters())
    velocity, losses = None, []
    for batch in batches:
        each = len(batch[0]) // groups["dp"].size()
        inputs, classes = (t[groups["dp"].rank() * each :][:each] for t in batch)
        if at:
            inputs = torch.zeros(each, stage.width)
            dist.irecv(inputs, group=groups["pp"], group_src=at - 1).wait()
            inputs.requires_grad_()
        out = stage(inputs)
        loss = torch.tensor(0.0)
        if at == stages - 1:
            loss = cross_entropy(out, classes, reduction="sum") / each
            gradients = torch.autograd.grad(loss, [p for _, p in named] + [inputs] * (at > 0))
        else:
            dist.isend(out.detach().contiguous(), group=groups["pp"], group_dst=at + 1).wait()
            back = torch.zeros_like(out)
            dist.irecv(back, group=groups["pp"], group_src=at + 1).wait()
            gradients = torch.autograd.grad(out, [p for _, p in named] + [inputs] * (at > 0), back)
        if at:
            dist.isend(gradients[-1].contiguous(), group=groups["pp"], group_dst=at - 1).wait()
            gradients = gradients[:-1]
        own = {name: gradient.clone() for (name, _), gradient in zip(named, gradients, strict=True)}
        terms = [own[name] for name in sorted(partial)]
        if terms:
            flat = parameters_to_vector(terms)
            dist.all_reduce(flat, group=groups["tp"])
            vector_to_parameters(flat, terms)
        if tied in own and stages > 1:
            other = torch.empty_like(own[tied])
            ops = [
                dist.P2POp(dist.isend, own[tied].clone(), group=groups["pp"], group_peer=stages - 1 - at),
                dist.P2POp(dist.irecv, other, group=groups["pp"], group_peer=stages - 1 - at),
            ]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
            own[tied] += other
        flat = parameters_to_vector([own[name] for name, _ in named]) / groups["dp"].size()
        dist.all_reduce(flat, group=groups["dp"])

        share = []
        for name, p in named:
            copies = 1 if name in split else groups["tp"].size()
            copies *= stages if name == tied else 1
            share.append(torch.full((p.numel(),), 1 / copies))
        square = (flat.square() * torch.cat(share)).sum()
        for axis in ("pp", "tp"):
            dist.all_reduce(square, group=groups[axis])
        flat = flat * (max_norm / (square.sqrt() + 1e-6)).clamp(max=1)
        velocity = flat if velocity is None else 0.9 * velocity + flat
        start = 0
        with torch.no_grad():
            for _, p in named:
                p -= lr * velocity[start : start + p.numel()].view_as(p)
                start += p.numel()
        total = loss.detach().clone().reshape(1)
        dist.all_reduce(total, group=groups["dp"])
        dist.all_reduce(total, group=groups["pp"])
        losses.append(float(total) / groups["dp"].size())
    return losses
