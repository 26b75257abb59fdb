"""The GPT on a part of the tokens beside the whole one: losses, gradients, trained parameters; mistakes in a step."""

import functools

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

import dtlearn
from dtlearn.context_parallel import (
    ContextParallelEmbedding,
    context_parallel_gpt,
    own_tokens,
    reduce_context_parallel_gradients,
    reported_mean,
    token_mean,
)
from dtlearn.context_parallel import gpt as module
from dtlearn.models import GPT, GPTConfig, max_difference, snapshot_gradients, train_reference
from tests.data_parallel.runs import message_of
from tests.devices import run_ranks
from tests.sharing.groups import in_groups

TOLERANCE = 1e-10  # measured: below 1e-13
B, T, V, STEPS, IGNORED = 2, 16, 13, 3, -100
SIZES = {"vocab_size": V, "context_length": T, "num_layers": 2, "num_heads": 4, "hidden_size": 16}
CASES = [
    ("ring", "zigzag", "sgd", False),
    ("ring", "zigzag", "adamw", False),
    ("ring", "contiguous", "sgd", True),
    ("all-gather", "zigzag", "sgd", True),
    ("all-gather", "contiguous", "adamw", False),
    ("ulysses", "zigzag", "adamw", True),
    ("ulysses", "contiguous", "sgd", False),
]
OPTIMIZERS = {
    "sgd": functools.partial(torch.optim.SGD, lr=0.3, momentum=0.9),
    "adamw": functools.partial(torch.optim.AdamW, lr=0.01),
}


def whole_gpt(tied=False):
    return GPT(GPTConfig(**SIZES, tie_embeddings=tied)).double().to(dtlearn.device())


def batches():
    """Targets of which the first sequence's first 5 do not count: a prompt."""
    tokens = torch.randint(V, (STEPS, B, T + 1), generator=torch.Generator().manual_seed(1))
    inputs, targets = tokens[..., :-1].clone(), tokens[..., 1:].clone()
    targets[:, 0, :5] = IGNORED
    return [(x.to(dtlearn.device()), y.to(dtlearn.device())) for x, y in zip(inputs, targets, strict=True)]


def loss_sum(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum", ignore_index=IGNORED)


def mean_loss(logits, targets):
    return loss_sum(logits, targets) / targets.ne(IGNORED).sum()


def backward(model, batch, layout, group):
    """The step of `context_parallel_gpt`'s docstring; returns the loss of the whole batch."""
    inputs, targets = (own_tokens(x, layout=layout, group=group) for x in batch)
    term = token_mean(loss_sum(model(inputs), targets), targets.ne(IGNORED).sum(), group=group)
    term.backward()
    reduce_context_parallel_gradients(model, group=group)
    return reported_mean(term, group=group)


def seeded(tied=False):
    torch.manual_seed(8)
    return whole_gpt(tied)


def trained(method, layout, optimizer, tied, group):
    """The largest difference of a loss, a gradient, and a parameter after all steps."""
    make = OPTIMIZERS[optimizer]
    run = train_reference(lambda: whole_gpt(tied), make, batches(), mean_loss, seed=8)
    model = context_parallel_gpt(seeded(tied), method=method, layout=layout, group=group)
    update, found = make(model.parameters()), []
    for expected, batch in zip(run.steps, batches(), strict=True):
        update.zero_grad()
        found.append(abs(backward(model, batch, layout, group) - expected.loss))
        found.append(max_difference(snapshot_gradients(model), expected.gradients).value)
        update.step()
        now = {name: p.detach().cpu() for name, p in model.named_parameters()}
        found.append(max_difference(now, expected.parameters).value)
    return max(found)


def parity(cases):
    torch.manual_seed(dist.get_rank())  # ranks are seeded differently
    return in_groups(lambda group: {case: trained(*case, group) for case in cases}, (1, 2, 4))


def test_it_is_the_whole_model():
    for of_sizes in run_ranks(parity, 4, CASES, device="cpu"):
        for size, found in of_sizes.items():
            assert len(found) == len(CASES) and max(found.values()) < TOLERANCE, (size, found)


def test_it_is_on_another_device(other_device):
    for of_sizes in run_ranks(parity, 2, CASES[::3], device=other_device):
        assert max(of_sizes[2].values()) < TOLERANCE, of_sizes


def data_and_context_parallel():
    """dp = 2 outside, cp = 2 inside: a row of the batch on each pair of ranks, and one sum over all four."""
    cp = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])][dist.get_rank() // 2]
    run = train_reference(whole_gpt, OPTIMIZERS["adamw"], batches(), mean_loss, seed=8)
    model = context_parallel_gpt(seeded(), group=cp)
    update, found = OPTIMIZERS["adamw"](model.parameters()), []
    for expected, batch in zip(run.steps, batches(), strict=True):
        row = dist.get_rank() // 2
        inputs, targets = (own_tokens(x[row : row + 1], group=cp) for x in batch)
        update.zero_grad()
        term = token_mean(loss_sum(model(inputs), targets), targets.ne(IGNORED).sum())  # of all ranks
        term.backward()
        reduce_context_parallel_gradients(model)
        found.append(max_difference(snapshot_gradients(model), expected.gradients).value)
        found.append(abs(reported_mean(term) - expected.loss))
        update.step()
    return max(found)


def test_with_data_parallelism_one_sum_goes_over_all_ranks():
    assert max(run_ranks(data_and_context_parallel, 4, device="cpu").values) < TOLERANCE


# Sabotage: one step, beside that of the whole model.


def gradient_difference(layout="zigzag"):
    batch, whole = batches()[0], seeded()
    mean_loss(whole(batch[0]), batch[1]).backward()
    model = context_parallel_gpt(seeded(), layout=layout)
    backward(model, batch, layout, None)
    return max_difference(snapshot_gradients(model), snapshot_gradients(whole)).value


def local_positions(monkeypatch):
    monkeypatch.setattr(
        module,
        "token_positions",
        lambda length, num_ranks, rank, layout, *, device: torch.arange(length // num_ranks, device=device),
    )


def gradients_not_summed(monkeypatch):
    monkeypatch.setitem(globals(), "reduce_context_parallel_gradients", lambda model, *, group: None)


def mean_of_means(monkeypatch):
    """As if each rank's tokens weighed as much: with a prompt that does not count they do not."""
    monkeypatch.setitem(
        globals(), "token_mean", lambda total, count, *, group: total / count / dist.get_world_size(group)
    )


def targets_of_the_rank(monkeypatch):
    """Each rank shifts its own tokens: the target of a chunk's last token is wrong."""
    before = own_tokens

    def shifted(x, *, layout, group):
        part = before(x, layout=layout, group=group)
        return part.roll(1, 1) if x.min() < 0 else part

    monkeypatch.setitem(globals(), "own_tokens", shifted)


SABOTAGE = [local_positions, gradients_not_summed, mean_of_means, targets_of_the_rank]


def sabotaged():
    found = {"none": gradient_difference()}
    for sabotage in SABOTAGE:
        with pytest.MonkeyPatch.context() as monkeypatch:
            sabotage(monkeypatch)
            found[sabotage.__name__] = gradient_difference()
    return found


def test_each_mistake_in_a_step_is_found():
    for found in run_ranks(sabotaged, 2, device="cpu"):
        assert found.pop("none") < TOLERANCE
        assert len(found) == 4 and min(found.values()) > 1e-4, found


def built():
    whole = whole_gpt(tied=True)
    names = [name for name, _ in whole.named_parameters()]
    before = dict(whole.named_parameters())
    model = context_parallel_gpt(whole)
    same = all(parameter is before[name] for name, parameter in model.named_parameters())
    embedding = ContextParallelEmbedding(whole.embedding.token, whole.embedding.position)
    return {
        "names": [name for name, _ in model.named_parameters()] == names and same,
        "tied": model.head.projection.weight is model.embedding.token.weight,
        "logits": model(torch.zeros(1, 4, dtype=torch.int64)).shape,
        "no dropout": embedding(torch.zeros(1, 4, dtype=torch.int64)).shape,
        "long": message_of(lambda: model(torch.zeros(1, T, dtype=torch.int64))),
        "odd": message_of(lambda: model(torch.zeros(1, 3, dtype=torch.int64))),
        "dropout": message_of(lambda: context_parallel_gpt(GPT(GPTConfig(dropout=0.1)))),
    }


def test_it_has_the_parameters_and_refuses_what_does_not_fit():
    for found in run_ranks(built, 2, device="cpu"):
        assert found["names"] and found["tied"]
        assert found["logits"] == (1, 4, V) and found["no dropout"] == (1, 4, SIZES["hidden_size"])
        assert found["long"] == "ValueError: the sequence has 32 tokens on 2 ranks, but context_length is 16"
        assert "2 ranks; got 6 tokens" in found["odd"]
        assert found["dropout"].startswith("ValueError: dropout=0.1")
