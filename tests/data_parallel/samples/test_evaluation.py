"""Evaluation on ranks gives what one process gives; means of means do not. Bytes and messages as the formula says."""

import math
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dtlearn.data_parallel import evaluate, evaluate_locally, mean_of_means
from dtlearn.data_parallel.samples.evaluation import evaluating
from dtlearn.models import MLP, load_digits
from dtlearn.runtime.run import run_ranks

SIZES = [1, 2, 3, 4, 7]  # 7 does not divide the 360 test images
CLASSES = 10


def make_model():
    """An MLP with dropout, trained a little: not so good that all parts look alike."""
    digits = load_digits()
    torch.manual_seed(0)
    model = nn.Sequential(MLP(), nn.Dropout(0.5))
    for x, y in digits.batches(60, 96):
        model.zero_grad()
        F.cross_entropy(model[0](x), y).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.3 * p.grad
    return model


def test_set(n=None):
    digits = load_digits()
    return TensorDataset(digits.test_x[:n], digits.test_y[:n])


test_set.__test__ = False


@pytest.fixture(scope="module")
def trained():
    """Parameters by name, for the ranks, and what one process finds on the first n test images."""
    model = make_model()

    def single(n=None):
        return evaluate_locally(model, DataLoader(test_set(n), batch_size=64), num_classes=CLASSES)

    return {k: v.numpy() for k, v in model.state_dict().items()}, single


def rebuilt(state):
    model = nn.Sequential(MLP(), nn.Dropout(0.5))
    model.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
    return model.train()


def evaluate_on_rank(state, n, padded=False, checked=True):
    import torch.distributed as dist

    from dtlearn.data_parallel import DistributedSampler, EvaluationSampler

    model, dataset = rebuilt(state), test_set(n)
    torch.manual_seed(dist.get_rank())  # dropout, were it on, would differ
    sampler = DistributedSampler(dataset, shuffle=False) if padded else EvaluationSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    try:
        found = evaluate(model, loader, num_classes=CLASSES, num_samples=len(dataset) if checked else None)
    except ValueError as error:
        return str(error)
    assert model.training and model[1].training and torch.is_grad_enabled()
    return found


@pytest.mark.parametrize("world_size", SIZES)
def test_all_ranks_find_what_one_process_finds(world_size, trained):
    state, single = trained
    expected = single()
    result = run_ranks(evaluate_on_rank, world_size, state, None, device="cpu", record=True)
    for found in result:
        assert found.count == 360
        assert found.loss == pytest.approx(
            expected.loss, rel=1e-6
        )  # float32 means of other batches; the sum is float64
        for name in ("hits", "predicted", "actual"):
            assert torch.equal(getattr(found, name), getattr(expected, name))
        assert (found.accuracy, found.macro_f1) == (expected.accuracy, expected.macro_f1)
        assert found.loss == result[0].loss  # the same bits
    # One message to the group, whatever the number of batches.
    assert result.record.counts() == Counter({(r, "all_reduce"): 1 for r in range(world_size)})
    for event in result.record:
        assert (event.nbytes, event.dtype) == (8 * (1 + 3 * CLASSES), "float64")


def test_fewer_samples_than_ranks(trained):
    state, single = trained
    for found in run_ranks(evaluate_on_rank, 4, state, 2, device="cpu"):
        assert found.count == 2 and found.loss == pytest.approx(single(2).loss, rel=1e-6)
        assert found.correct == single(2).correct


def test_a_padded_sampler_is_noticed_on_every_rank(trained):
    for words in run_ranks(evaluate_on_rank, 4, trained[0], 5, True, device="cpu"):
        assert "8 samples were counted in a data set of 5" in words


def test_sabotage_a_padded_sampler_counts_some_twice(trained):
    state, single = trained
    found = run_ranks(evaluate_on_rank, 2, state, 5, True, False, device="cpu")[0]
    assert found.count == 6
    assert abs(found.loss - single(5).loss) > 1e-3


def evaluate_without_sum(state):
    import torch.distributed as dist

    dist.all_reduce = lambda tensor, group=None: None
    return evaluate_on_rank(state, None, checked=False).count, evaluate_on_rank(state, None)


def test_sabotage_without_the_all_reduce_each_rank_knows_its_part(trained):
    for count, words in run_ranks(evaluate_without_sum, 2, trained[0], device="cpu"):
        assert count == 180 and "180 samples were counted in a data set of 360" in words


def means_on_rank(state, n):
    import torch.distributed as dist

    from dtlearn.data_parallel import EvaluationSampler

    dataset = test_set(n)
    loader = DataLoader(dataset, batch_size=16, sampler=EvaluationSampler(dataset))
    assert len(loader) or dist.get_rank() >= n
    return tuple(mean_of_means(rebuilt(state), loader, num_classes=CLASSES))


def test_means_of_means_are_wrong_on_uneven_shards(trained):
    state, single = trained
    result = run_ranks(means_on_rank, 3, state, 52, device="cpu", record=True)  # 18, 17, 17: batches of 16 and 2 or 1
    assert len(set(result.values)) == 1
    loss, accuracy, macro_f1 = result[0]
    expected = single(52)
    assert abs(loss - expected.loss) > 1e-3
    assert abs(accuracy - expected.accuracy) > 1e-3
    assert abs(macro_f1 - expected.macro_f1) > 1e-3
    assert result.record.counts() == Counter({(r, "all_reduce"): 1 for r in range(3)})
    assert {event.nbytes for event in result.record} == {24}


def test_means_of_means_on_even_shards_are_right_but_for_f1(trained):
    state, single = trained
    loss, accuracy, macro_f1 = run_ranks(means_on_rank, 4, state, 256, device="cpu")[0]  # 4 batches of 16 on each
    expected = single(256)
    assert loss == pytest.approx(expected.loss, rel=1e-5) and accuracy == pytest.approx(expected.accuracy)
    assert abs(macro_f1 - expected.macro_f1) > 1e-3


def test_means_of_means_with_a_rank_without_samples(trained):
    assert all(map(math.isnan, run_ranks(means_on_rank, 3, trained[0], 2, device="cpu")[0]))


def wrapped(n):
    """Torch's own wrapper communicates in an eval forward, if the model has buffers; ours says so and refuses."""
    import torch.distributed as dist

    model = nn.Sequential(nn.Linear(64, CLASSES), nn.BatchNorm1d(CLASSES))
    ddp = nn.parallel.DistributedDataParallel(model).eval()
    dist.barrier()
    with torch.no_grad():
        ddp(torch.zeros(n, 64))
    dist.barrier()
    try:
        evaluate(ddp, [], num_classes=CLASSES)
    except ValueError as error:
        return str(error)


def test_a_wrapper_is_refused_because_it_communicates():
    result = run_ranks(wrapped, 2, 3, device="cpu", record=True)
    assert all("pass model.module, not the DistributedDataParallel" in words for words in result)
    for rank in range(2):
        ops = [e.op for e in result.record.select(rank=rank)]
        first, last = (i for i, op in enumerate(ops) if op == "barrier")
        assert "broadcast" in ops[first:last]


def test_one_process_needs_no_group(trained):
    state, single = trained
    loader = DataLoader(test_set(), batch_size=64)
    assert evaluate(rebuilt(state), loader, num_classes=CLASSES, num_samples=360).loss == single().loss
    even = mean_of_means(rebuilt(state), DataLoader(test_set(), batch_size=90), num_classes=CLASSES)
    assert even.loss == pytest.approx(single().loss, rel=1e-6)


def test_the_modes_of_the_parts_come_back():
    model = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model[1].eval()  # frozen statistics
    with pytest.raises(KeyError), evaluating(model):
        assert not any(m.training for m in model.modules()) and not torch.is_grad_enabled()
        raise KeyError
    assert [m.training for m in model] == [True, False, True] and model.training and torch.is_grad_enabled()
    with pytest.raises(ValueError, match="num_classes is 3"):
        evaluate_locally(model, [(torch.zeros(5, 4), torch.zeros(5, dtype=torch.int64))], num_classes=3)
    assert [m.training for m in model] == [True, False, True] and torch.is_grad_enabled()
