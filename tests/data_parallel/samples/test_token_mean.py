"""Token-weighted means: parity with one process on uneven batches, and what goes wrong without."""

import pytest
import torch

from dtlearn.runtime.run import run_ranks

UNEVEN = [5, 0, 3, 1]  # tokens per rank; rank 1 has none
MICRO = [[2, 3], [4, 1], [0, 0], [1, 5]]  # of each rank's two micro-batches


IGNORED = -100  # the label of a token that does not count


def tokens(step, count, rank, part=0):
    """This rank's inputs (count, 6) and targets (count,); the same wherever they are made."""
    g = torch.Generator().manual_seed(1000 * step + 10 * rank + part)
    return (
        torch.randn(count, 6, generator=g, dtype=torch.float64),
        torch.randint(0, 3, (count,), generator=g),
    )


def make_model():
    from dtlearn.models import MLP

    return MLP((6, 8, 3)).double()


def mean_loss(outputs, targets):
    return torch.nn.functional.cross_entropy(outputs, targets)


def reference(counts, optimizer_name, steps=3):
    """One process on all tokens of all ranks and micro-batches."""
    from dtlearn.models import train_reference

    batches = []
    for step in range(steps):
        parts = [tokens(step, n, r, k) for r, per_rank in enumerate(counts) for k, n in enumerate(per_rank)]
        batches.append((torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])))
    return train_reference(make_model, optimizers()[optimizer_name], batches, mean_loss)


def optimizers():
    return {"sgd": lambda p: torch.optim.SGD(p, lr=0.3), "adam": lambda p: torch.optim.Adam(p, lr=0.01)}


def train(counts, optimizer_name, loss_of, sabotage=False, steps=3, ours=False):
    """On each rank, inside torch's DDP or ours: [(reported loss, gradients, parameters)], one for each update."""
    import contextlib

    import torch.distributed as dist

    from dtlearn.data_parallel.ddp import DistributedDataParallel
    from dtlearn.data_parallel.samples import token_mean as tm
    from dtlearn.models import snapshot_gradients, snapshot_parameters

    rank = dist.get_rank()
    torch.manual_seed(0 if rank == 0 else 99 + rank)  # DDP has to bring rank 0's parameters to the others
    model = make_model()
    ddp = (DistributedDataParallel if ours else torch.nn.parallel.DistributedDataParallel)(model)
    optimizer = optimizers()[optimizer_name](ddp.parameters())
    real = dist.all_reduce
    if sabotage:
        dist.all_reduce = lambda tensor, *args, **kwargs: None  # token_mean's; DDP's reducer is not reached by this
    kept = []
    for step in range(steps):
        optimizer.zero_grad()
        parts = [tokens(step, n, rank, k) for k, n in enumerate(counts[rank])]
        sums = []
        total = tm.count_tokens(*(len(y) for _, y in parts)) if loss_of == "accumulate" else None
        for k, (x, y) in enumerate(parts):
            if loss_of != "accumulate":  # two tokens more, which are padding; accumulation sees empty micro-batches
                x, y = torch.cat([x, x.new_ones(2, 6)]), torch.cat([y, y.new_full((2,), IGNORED)])
            count = y.ne(IGNORED).sum()
            with contextlib.nullcontext() if k == len(parts) - 1 else ddp.no_sync():
                loss_sum = torch.nn.functional.cross_entropy(ddp(x), y, reduction="sum")
                if loss_of == "accumulate":
                    loss = tm.scale_for_averaging(loss_sum, total)
                elif loss_of == "global_mean":
                    loss = tm.global_mean(loss_sum, count)
                    total = tm.count_tokens(count)
                else:
                    loss, total = tm.mean_of_means(loss_sum, count), torch.tensor(dist.get_world_size())
                    loss_sum = loss  # what is reported is the mean of the means
                loss.backward()
                sums.append(loss_sum.detach())
        reported = tm.reported_loss(sum(sums), total).item()
        gradients = snapshot_gradients(model)
        optimizer.step()
        kept.append((reported, gradients, snapshot_parameters(model)))
    dist.all_reduce = real
    return kept


def worst(run, ranks):
    """Largest difference of any gradient or parameter of any rank and step."""
    from dtlearn.models import max_difference

    return max(
        max_difference(mine, theirs).value
        for kept in ranks
        for (_, gradients, parameters), step in zip(kept, run.steps, strict=True)
        for mine, theirs in ((gradients, step.gradients), (parameters, step.parameters))
    )


@pytest.mark.parametrize(("world_size", "optimizer"), [(1, "sgd"), (2, "sgd"), (3, "adam"), (4, "sgd"), (4, "adam")])
def test_uneven_ranks_in_ddp_are_one_process(world_size, optimizer):
    counts = [[n] for n in UNEVEN[:world_size]]
    run = reference(counts, optimizer)
    ranks = run_ranks(train, world_size, counts, optimizer, "global_mean").values
    assert worst(run, ranks) < 1e-12
    for kept in ranks:
        assert [step[0] for step in kept] == pytest.approx(run.losses, abs=1e-12)


@pytest.mark.parametrize(("world_size", "ours"), [(1, False), (2, True), (3, False), (4, False), (4, True)])
def test_uneven_micro_batches_in_ddp_are_one_process(world_size, ours):
    counts = MICRO[:world_size]
    run = reference(counts, "sgd")
    ranks = run_ranks(train, world_size, counts, "sgd", "accumulate", False, 3, ours).values
    assert worst(run, ranks) < 1e-12
    for kept in ranks:
        assert [step[0] for step in kept] == pytest.approx(run.losses, abs=1e-12)


def test_the_mean_of_means_is_wrong_by_this_much():
    """3 tokens on one rank and 1 on the other: each token of rank 1 counts three times as much as one of rank 0."""
    counts = [[3], [1]]
    run = reference(counts, "sgd", steps=1)
    naive = worst(run, run_ranks(train, 2, counts, "sgd", "mean_of_means", False, 1).values)
    even = worst(
        reference([[2], [2]], "sgd", steps=1),
        run_ranks(train, 2, [[2], [2]], "sgd", "mean_of_means", False, 1).values,
    )
    assert even < 1e-12, "equal counts: both are the same"
    assert 0.01 < naive < 1, f"the largest gradient error is {naive:.3g}"


def test_a_rank_of_padding_halves_the_gradients_of_the_mean_of_means():
    """Cross-entropy gives it a loss of NaN, and gradients of 0 that are averaged in."""
    run = reference([[5], [0]], "sgd", steps=1)
    for (reported, gradients, _), *_ in run_ranks(train, 2, [[5], [0]], "sgd", "mean_of_means", False, 1).values:
        assert reported != reported
        for name, right in run.steps[0].gradients.items():
            torch.testing.assert_close(gradients[name], right / 2)


def test_padding_that_is_masked_by_hand_makes_gradients_nan():
    from dtlearn.data_parallel.samples.token_mean import mean_of_means

    w, mask = torch.ones(2, requires_grad=True), torch.zeros(2)
    mean_of_means((w.square() * mask).sum(), mask.sum()).backward()
    assert w.grad.isnan().all()


@pytest.mark.parametrize("loss_of", ["global_mean", "accumulate"])
def test_without_its_all_reduce_the_parity_fails(loss_of):
    counts = [[3], [1]]
    run = reference(counts, "sgd", steps=1)
    broken = worst(run, run_ranks(train, 2, counts, "sgd", loss_of, True, 1).values)
    assert broken > 0.1, f"the largest error is only {broken:.3g}"


def no_tokens_at_all():
    from dtlearn.data_parallel.samples.token_mean import count_tokens, global_mean, reported_loss

    w = torch.ones(3, requires_grad=True)
    loss_sum = (w * torch.ones(0, 3)).sum()
    loss = global_mean(loss_sum, 0)
    loss.backward()
    return loss.item(), w.grad.tolist(), reported_loss(loss_sum, count_tokens(0)).item()


def test_no_tokens_on_any_rank_give_zero():
    assert run_ranks(no_tokens_at_all, 2).values == [(0.0, [0.0] * 3, 0.0)] * 2


def one_update():
    from dtlearn.data_parallel.samples.token_mean import count_tokens, global_mean, reported_loss, scale_for_averaging

    w = torch.ones((), requires_grad=True)
    global_mean(w * 2, 3).backward()
    total = count_tokens(torch.tensor(3), 2, 4)
    for _ in range(3):
        scale_for_averaging(w * 2, total).backward()
    reported_loss(w * 6, total)
    return int(total)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_messages_and_bytes_are_those_of_the_docstrings(world_size):
    done = run_ranks(one_update, world_size, record=True, device="cpu")
    assert done.values == [9 * world_size] * world_size
    for rank in range(world_size):
        mine = [(e.op, e.nbytes, e.dtype) for e in done.record if e.rank == rank]
        assert mine == [("all_reduce", 8, "int64"), ("all_reduce", 8, "int64"), ("all_reduce", 4, "float32")]


def in_a_group():
    import torch.distributed as dist

    from dtlearn.data_parallel.samples.token_mean import count_tokens, scale_for_averaging

    groups = [dist.new_group([0, 2]), dist.new_group([1])]
    group = groups[dist.get_rank() % 2]
    total = count_tokens(10 ** dist.get_rank(), group=group)
    return int(total), scale_for_averaging(torch.tensor(1.0), total, group=group).item()


def test_only_the_group_counts():
    low, high, again = run_ranks(in_a_group, 3).values
    assert low == again == (101, pytest.approx(2 / 101))
    assert high == (10, pytest.approx(1 / 10))


def exact_counts_and_types():
    from dtlearn.data_parallel.samples.token_mean import count_tokens

    said = []
    for wrong in (1.5, torch.tensor(3.0)):
        with pytest.raises(TypeError, match="integers") as error:
            count_tokens(wrong)
        said.append(str(error.value))
    return int(count_tokens(2**24 + 1)), said


def test_large_counts_are_exact_and_floats_are_refused():
    for total, said in run_ranks(exact_counts_and_types, 2).values:
        assert total == 2 * (2**24 + 1)
        assert "got float" in said[0] and "float32" in said[1]
