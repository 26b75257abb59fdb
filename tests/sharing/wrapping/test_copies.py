"""A wrapper that is copied, or pickled: its copy averages its own gradients, with its own hooks and buckets."""

import copy
import io
import pickle

import torch
import torch.distributed as dist
import torch.nn.functional as F

from dtlearn.runtime.run import run_ranks
from dtlearn.sharing.wrapping.copies import copy_in_group
from tests.data_parallel.runs import TOLERANCE, bucketed, data, mlp, naive, ours

WRAPPERS = {
    "naive": naive,
    "bucketed": bucketed,
    "ddp": ours,
    "views": lambda module, **options: ours(module, gradient_as_bucket_view=True, **options),
}


def saved_and_loaded(wrapped):
    file = io.BytesIO()
    torch.save(wrapped, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


WAYS = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda wrapped: pickle.loads(pickle.dumps(wrapped)),
    "torch.save": saved_and_loaded,
}


def train(wrapped, step, share=slice(None)):
    """A step, and the parameters after it."""
    inputs, targets = data("mlp", 3, 12)[step]
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    optimizer.zero_grad()
    F.cross_entropy(wrapped(inputs[share]), targets[share]).backward()
    optimizer.step()
    return [p.detach().clone() for p in wrapped.parameters()]


def distance(mine, theirs):
    return max((a - b).abs().max().item() for a, b in zip(mine, theirs, strict=True))


def copied():
    """After one step a wrapper is copied; copy and original go on by themselves, with other samples."""
    share, group, apart = slice(dist.get_rank(), None, 2), dist.new_group([0, 1]), {}
    torch.manual_seed(0)
    plain = mlp()
    begins = copy.deepcopy(plain)
    train(plain, 0)
    expected = [train(copy.deepcopy(plain), step) for step in (1, 2)]
    for name, wrap in WRAPPERS.items():
        for way, make_copy in WAYS.items():
            options = {"group": group} if way == "deepcopy" else {}  # a group cannot be pickled
            wrapped = wrap(copy.deepcopy(begins), **options)
            train(wrapped, 0, share)
            twin = make_copy(wrapped)
            apart[name, way] = [
                distance(train(model, step, share), after)
                for model, step, after in ((twin, 1, expected[0]), (wrapped, 2, expected[1]))
            ]
    return apart


def test_a_copy_and_its_original_are_two_models():
    for apart in run_ranks(copied, 2, device="cpu"):
        assert len(apart) == len(WRAPPERS) * len(WAYS)
        assert not {case: away for case, away in apart.items() if max(away) > TOLERANCE}


class Holder:
    def __init__(self, group):
        self.group, self.values = group, [1]

    def __deepcopy__(self, memo):
        return copy_in_group(self, memo, self.group)


def test_the_group_is_shared_and_the_rest_is_copied():
    group = object()
    holder, outer = Holder(group), []
    outer += [holder, holder]
    first, second = copy.deepcopy(outer)
    assert first is second is not holder and first.group is group
    assert first.values == [1] and first.values is not holder.values
