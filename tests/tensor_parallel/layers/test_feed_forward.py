"""The divided network beside the undivided one, with one reduction each way; two naive ones, and their price."""

import copy
import itertools

import pytest
import torch
import torch.distributed as dist

import dtlearn
from dtlearn.models.gpt import FeedForward, GPTConfig
from dtlearn.runtime.errors import RankError
from dtlearn.tensor_parallel import tensor_parallel_manual_seed
from dtlearn.tensor_parallel.layers.feed_forward import ParallelFeedForward
from dtlearn.tensor_parallel.layers.naive import OutputGatheredFeedForward, WeightGatheredFeedForward
from tests.devices import run_ranks
from tests.sharing.groups import calls_of, in_groups
from tests.tensor_parallel.parity import errors, reference, tensors

B, T, C, F = 2, 12, 12, 48
TOKENS, INSIDE, WEIGHTS = B * T * C * 8, B * T * F * 8, F * C * 8  # bytes


def pair(t):
    return [("all_reduce", TOKENS), ("all_reduce", TOKENS)]


def pair_by_tokens(t):
    each_way = [("all_gather_into_tensor", TOKENS // t), ("reduce_scatter_tensor", TOKENS)]
    return [*each_way, ("all_gather_into_tensor", TOKENS // t), ("reduce_scatter_tensor", TOKENS)]


def pair_gathered_again(t):
    gather, scatter = ("all_gather_into_tensor", TOKENS // t), ("reduce_scatter_tensor", TOKENS)
    return [gather, scatter, gather, gather, scatter]


def outputs_gathered(t):
    forward = [("all_gather_into_tensor", INSIDE // t), ("all_gather_into_tensor", TOKENS // t)]
    return [*forward, ("all_reduce", INSIDE), ("all_reduce", TOKENS)]


def weights_gathered(t):
    sizes = (WEIGHTS, F * 8, WEIGHTS, C * 8)
    return [("all_gather_into_tensor", size // t) for size in sizes]


# How it is built from the undivided one, along which dim its input and output are divided, and its calls with t ranks.
KINDS = {
    "pair": (ParallelFeedForward, {}, None, pair),
    "pair, overlap": (ParallelFeedForward, {"overlap": True}, None, pair),
    "pair, tokens": (ParallelFeedForward, {"sequence_parallel": True}, 1, pair_by_tokens),
    "pair, tokens, again": (
        ParallelFeedForward,
        {"sequence_parallel": True, "gather_again": True},
        1,
        pair_gathered_again,
    ),
    "outputs gathered": (OutputGatheredFeedForward, {}, None, outputs_gathered),
    "weights gathered": (WeightGatheredFeedForward, {}, None, weights_gathered),
}


def undivided(dropout=0.0):
    torch.manual_seed(3)
    return FeedForward(GPTConfig(hidden_size=C, num_heads=1, dropout=dropout)).double().to(dtlearn.device())


def every_kind():
    whole = undivided()
    x, gradient = tensors((B, T, C), (B, T, C))
    expected = reference(whole, x, gradient)

    def case(group):
        found, layers = {}, {}
        for name, (kind, options, dim, _) in KINDS.items():
            layers[name] = kind.from_feed_forward(whole, group=group, **options)
            found[name] = errors(
                layers[name], x, gradient, expected, group, x_dim=dim, out_dim=dim, reduce="tokens" not in name
            )
            dist.barrier(group=group)
        swapped = copy.deepcopy(whole)
        swapped.up.weight.data = whole.up.weight.data.roll(1, 0)
        other = ParallelFeedForward.from_feed_forward(swapped, group=group)
        found["features of the first layer moved by one"] = errors(other, x, gradient, expected, group)
        full = layers["pair"].full_params()
        assert all(torch.equal(full[name], parameter) for name, parameter in whole.named_parameters())
        return found

    return in_groups(case)


@pytest.fixture(scope="module")
def kinds():
    return run_ranks(every_kind, 4, device="cpu", record=True)


def test_parity_on_another_device(other_device):
    test_parity(run_ranks(every_kind, 2, device=other_device))


def test_parity(kinds):
    for of_sizes in kinds:
        for size, found in of_sizes.items():
            for name in KINDS:
                wrong = dict(found[name])
                if "tokens" in name and size > 1:
                    assert wrong.pop("down.bias") > 1e-2, "a partial sum until the marked gradients are summed"
                assert max(wrong.values()) < 1e-12, (size, name, wrong)
            assert found["features of the first layer moved by one"]["output"] > 1e-2


def calls_of_kinds(record, size):
    """The calls of each kind, in order: a barrier stands between them."""
    groups = itertools.groupby(calls_of(record, size), lambda call: call[0] == "barrier")
    return dict(zip(KINDS, ([*calls] for is_barrier, calls in groups if not is_barrier), strict=False))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_one_reduction_each_way_and_the_price_of_the_others(kinds, size):
    calls = calls_of_kinds(kinds.record, size)
    for name, (*_, formula) in KINDS.items():
        assert calls[name] == formula(size), name


def sent(calls, t):
    """Elements that a rank sends in these calls, in units of b s C (t-1)/t."""
    factors = {"all_reduce": 2, "reduce_scatter_tensor": 1, "all_gather_into_tensor": t}
    return sum(nbytes * factors[op] for op, nbytes in calls) / TOKENS


def test_the_table_of_prices(kinds):
    for size in (2, 3, 4):
        calls = calls_of_kinds(kinds.record, size)
        assert sent(calls["pair"], size) == sent(calls["pair, overlap"], size) == sent(calls["pair, tokens"], size) == 4
        assert sent(calls["pair, tokens, again"], size) == 5
        assert sent(calls["outputs gathered"], size) == pytest.approx(15)
        assert sent(calls["weights gathered"], size) * TOKENS / 8 == pytest.approx(2 * F * C + F + C)


def masks(sequence_parallel):
    """Where dropout left zeros, in a network from (B, T, C) of ones: on this rank's tokens, or on all."""
    tracker = tensor_parallel_manual_seed(11)
    network = ParallelFeedForward.from_feed_forward(
        undivided(0.5), sequence_parallel=sequence_parallel, random_states=tracker
    )
    x = torch.ones(B, T // 2 if sequence_parallel else T, C, dtype=torch.float64)
    return network(x) == 0


def test_dropout_is_the_same_for_the_same_tokens_and_another_for_others():
    same, other = zip(*run_ranks(lambda: (masks(False), masks(True)), 2, device="cpu"), strict=True)
    assert torch.equal(*same) and 0.3 < same[0].double().mean() < 0.7
    assert not torch.equal(*other) and 0.3 < (other[0] == other[1]).double().mean() < 0.7


def test_initial_weights_and_sizes():
    with pytest.raises(RankError, match="10 output features cannot be divided among 4 ranks"):
        run_ranks(lambda: ParallelFeedForward(4, 10), 4, device="cpu")

    def built():
        torch.manual_seed(dist.get_rank())
        return {name: tensor.shape for name, tensor in ParallelFeedForward(6, dropout=0.1).full_params().items()}

    shapes = {"up.weight": (24, 6), "up.bias": (24,), "down.weight": (6, 24), "down.bias": (6,)}
    assert run_ranks(built, 2, device="cpu")[1] == shapes
