"""The mean of tensors of several dtypes, now and in flight, of buffers, and of a whole model for evaluation."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dtlearn.gradient_compression.averaging.mean import MeanInFlight, average_buffers, average_tensors, averaged
from dtlearn.runtime.device import device as here
from tests.devices import run_ranks
from tests.gradient_compression.averaging.runs import with_batch_norm


def tensors_of(rank):
    """Tensors of two dtypes in turn, with an empty one among them."""
    values = torch.arange(12, dtype=torch.float64, device=here()) * (rank + 1)
    return [values[:6].view(2, 3), values[6:7].float(), values[7:7], values[7:].clone()]


def several():
    rank = dist.get_rank()
    mine = tensors_of(rank)
    before = [t.clone() for t in mine]
    flying = MeanInFlight(mine)
    for tensor in mine:
        tensor.zero_()  # it may change at once
    flats = [flat.clone() for flat in flying.arrive()]
    means = flying.wait()
    average_tensors(before)
    same = all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(means, before, strict=True))
    before[1][0] = float("inf") if rank == dist.get_world_size() - 1 else 1.0
    kept = before[0].clone()
    with pytest.raises(ValueError, match="Nothing was changed"):
        average_tensors(before)
    average_buffers(nn.Linear(1, 1))  # none: no call
    return same and torch.equal(kept, before[0]), [m.tolist() for m in means], [len(flat) for flat in flats]


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_mean_of_tensors_of_two_dtypes(ranks, device):
    factor = (ranks + 1) / 2
    for same, means, lengths in run_ranks(several, ranks, device=device):
        assert same and lengths == [11, 1]
        flat = [*means[0][0], *means[0][1], *means[1], *means[2], *means[3]]
        assert flat == pytest.approx([factor * i for i in range(12)], rel=1e-6)


def evaluated():
    rank = dist.get_rank()
    model = with_batch_norm(rank).to(here())
    model[1].running_mean.fill_(rank)
    model[1].num_batches_tracked.fill_(rank + 5)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(KeyError), averaged(model):
        inside = {name: value.cpu() for name, value in model.state_dict().items()}
        inside = {name: value.clone() for name, value in inside.items()}
        raise KeyError
    after = model.state_dict()
    return (
        inside,
        {name: value.cpu() for name, value in before.items()},
        all(torch.equal(before[name], after[name]) for name in before),
    )


def test_a_block_with_the_mean_of_the_models(device):
    run = run_ranks(evaluated, 2, device=device)
    for inside, _, restored in run:
        assert restored and inside["1.num_batches_tracked"] == 5
        for name in inside:
            if name != "1.num_batches_tracked":
                assert torch.allclose(inside[name], (run[0][1][name] + run[1][1][name]) / 2, rtol=0, atol=1e-15), name


def for_the_record():
    with averaged(with_batch_norm()):
        pass


def test_bytes_of_the_record():
    run = run_ranks(for_the_record, 2, device="cpu", record=True)
    parameters = 6 * 5 + 5 + 2 * 5 + 5 * 3 + 3
    for rank in range(2):
        assert [e.nbytes for e in run.record.select(rank=rank, op="all_reduce")] == [8 * parameters, 8 * 2 * 5]
        assert run.record.nbytes(rank=rank, op="broadcast") == 8
