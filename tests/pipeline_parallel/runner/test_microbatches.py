"""A batch is cut so that its mean loss is the sum of the shares; what is missing is named."""

import pytest
import torch

from dtlearn.pipeline_parallel import make_schedule
from dtlearn.pipeline_parallel.runner.microbatches import cut

LINE, V = make_schedule("gpipe", 2, 4), make_schedule("zbv", 2, 4)


@pytest.mark.parametrize(("rows", "sizes"), [(8, [2, 2, 2, 2]), (10, [3, 3, 2, 2]), (4, [1, 1, 1, 1])])
def test_shares_make_the_mean_of_the_batch(rows, sizes):
    x = torch.arange(rows, dtype=torch.float64)
    first, last, both = cut(LINE, 0, x, None), cut(LINE, 1, None, x), cut(V, 0, x, x)
    assert [len(part) for part in first.inputs] == [len(part) for part in last.targets] == sizes
    assert torch.equal(torch.cat(first.inputs), x) and first.targets == last.inputs == first.shares == ()
    assert last.shares == tuple(size / rows for size in sizes)
    mean = sum(part.mean() * share for part, share in zip(last.targets, last.shares, strict=True))
    assert abs(mean - x.mean()) < 1e-12
    assert len(both.inputs) == len(both.targets) == 4 and cut(V, 1, None, None).inputs == ()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cut(LINE, 0, None, None), "rank 0 holds stage 0 and needs the inputs"),
        (lambda: cut(LINE, 1, None, None), "rank 1 holds stage 1 and needs the targets"),
        (lambda: cut(LINE, 0, torch.ones(3), None), "3 rows cannot be cut into 4 micro-batches"),
        (lambda: cut(V, 0, torch.ones(5), torch.ones(4)), "inputs have 5 rows, targets 4"),
        (lambda: cut(V, 0, torch.ones(4), None), "rank 0 holds stage 3 and needs the targets"),
    ],
)
def test_what_is_missing_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_prediction_needs_no_targets():
    assert cut(LINE, 1, None, None, needs_targets=False).targets == ()
