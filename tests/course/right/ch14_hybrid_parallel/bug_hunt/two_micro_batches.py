import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def bug_hunt(stage, groups, split, partial, tied, batches, lr, max_norm):
    """Each replica's rows in two micro-batches, one after the other; the tied weight counts half on both stages."""
    tp, pp, dp = (groups[axis] for axis in ("tp", "pp", "dp"))
    first, last = dist.get_rank(pp) == 0, dist.get_rank(pp) == dist.get_world_size(pp) - 1
    own, losses = list(stage.named_parameters()), []
    optimizer = torch.optim.SGD(stage.parameters(), lr, momentum=0.9)
    for rows, classes in batches:
        n = dist.get_world_size(dp)
        rows, classes = (t.tensor_split(n)[dist.get_rank(dp)] for t in (rows, classes))
        total = torch.zeros(())
        for x, y in zip(rows.split((len(rows) + 1) // 2), classes.split((len(rows) + 1) // 2), strict=True):
            if not first:
                x = torch.empty(len(y), stage.width)
                dist.recv(x, group=pp, group_src=dist.get_rank(pp) - 1)
                x.requires_grad_()
            out = stage(x)
            if last:
                loss = cross_entropy(out, y) * len(y) / (len(rows) * n)
                loss.backward()
                total += loss.detach()
            else:
                dist.send(out.detach(), group=pp, group_dst=dist.get_rank(pp) + 1)
                back = torch.empty(out.shape)
                dist.recv(back, group=pp, group_src=dist.get_rank(pp) + 1)
                torch.autograd.backward(out, back)
            if not first:
                dist.send(x.grad, group=pp, group_dst=dist.get_rank(pp) - 1)
        for name, p in own:
            over = [dp] + [tp] * (name in partial) + [pp] * (name == tied)
            for group in over:
                dist.all_reduce(p.grad, group=group)
        squares = torch.zeros(2)
        for name, p in own:
            square = p.grad.norm() ** 2
            squares[int(name in split)] += square / dist.get_world_size(pp) if name == tied else square
        squares[0] /= dist.get_world_size(tp)
        dist.all_reduce(squares, group=tp)
        dist.all_reduce(squares, group=pp)
        torch.nn.utils.clip_grads_with_norm_(stage.parameters(), max_norm, squares.sum().sqrt())
        optimizer.step()
        optimizer.zero_grad()
        for group in (dp, pp):
            dist.all_reduce(total, group=group)
        losses.append(total.item())
    return losses
