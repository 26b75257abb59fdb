"""The divided GPT beside the whole one: losses, gradients, trained parameters and calls, with every option."""

from collections import Counter

import pytest
import torch
import torch.distributed as dist

import dtlearn
from dtlearn.models import GPT, GPTConfig, max_difference, next_token_loss, snapshot_gradients, train_reference
from dtlearn.tensor_parallel import gpt as module
from dtlearn.tensor_parallel.gpt import ParallelGPT
from dtlearn.tensor_parallel.random_states import tensor_parallel_manual_seed
from dtlearn.tensor_parallel.sequence_parallel import reduce_sequence_parallel_gradients
from tests.data_parallel.runs import message_of
from tests.devices import run_ranks
from tests.sharing.groups import in_groups

TOLERANCE = 1e-10  # measured: below 1e-14 for gradients, 1e-12 after Adam
B, T, C, V = 2, 12, 24, 13  # 13 tokens: padded with 2, 3 and 4 ranks
SIZES = {"vocab_size": V, "context_length": T, "num_heads": 12, "hidden_size": C}
OPTIONS = {
    "plain": {},
    "sequence": {"sequence_parallel": True},
    "gathered again": {"sequence_parallel": True, "gather_again": True},
    "overlap": {"overlap": True},
    "tied": {},
    "tied, sequence": {"sequence_parallel": True},
}
OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.3, momentum=0.9),
    "adam": lambda params: torch.optim.Adam(params, lr=0.01),
}


def whole_gpt(tied=False, num_layers=1):
    """The whole model in float64, without zeros among its biases."""
    model = GPT(GPTConfig(**SIZES, num_layers=num_layers, tie_embeddings=tied)).double()
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.data += 0.1 * torch.randn_like(parameter)
    return model.to(dtlearn.device())


def batches(num_batches=2):
    tokens = torch.randint(V, (num_batches, B, T + 1), generator=torch.Generator().manual_seed(1))
    tokens = tokens.to(dtlearn.device())
    return [(x[:, :-1], x[:, 1:]) for x in tokens]


def seeded(tied, num_layers=1):
    torch.manual_seed(8)
    return whole_gpt(tied, num_layers)


def backward(model, batch, is_summed=True):
    """Loss and gradients of one step, with those of sequence parallelism summed."""
    loss = model.loss(*batch)
    loss.backward()
    if is_summed:
        reduce_sequence_parallel_gradients(model, group=model.group)
    return loss.item()


def gradient_difference(model, expected):
    """The largest difference of this rank's gradients from its part of the expected ones."""
    parts = {name: model.local_part(name, gradient) for name, gradient in expected.items()}
    return max_difference(snapshot_gradients(model), parts).value


def trained(name, optimizer, group):
    """The differences of losses, of the first gradients, and of the parameters after all steps."""
    tied = name.startswith("tied")
    run = train_reference(lambda: whole_gpt(tied), OPTIMIZERS[optimizer], batches(), next_token_loss, seed=8)
    model = ParallelGPT.from_gpt(seeded(tied), group=group, **OPTIONS[name])
    update, found = OPTIMIZERS[optimizer](model.parameters()), []
    for step, batch in zip(run.steps, batches(), strict=True):
        update.zero_grad()
        found.append(abs(backward(model, batch) - step.loss))
        found.append(gradient_difference(model, step.gradients))
        update.step()
    found.append(max_difference(model.full_params(), run.steps[-1].parameters).value)
    return max(found)


def parity():
    def case(group):
        cases = [*((name, "sgd") for name in OPTIONS), ("tied, sequence", "adam")]
        return {case: trained(*case, group) for case in cases}

    return in_groups(case)


L = 2  # blocks of the model whose calls are counted


def one_step():
    def case(group):
        for name in ("plain", "gathered again"):
            model = ParallelGPT.from_gpt(seeded(False, L), group=group, **OPTIONS[name])
            backward(model, batches()[0])

    in_groups(case, (2, 4))


def without_sum(group):
    """Sabotage: norm weights of sequence parallelism not summed."""
    whole, batch = seeded(False), batches()[0]
    next_token_loss(whole(batch[0]), batch[1]).backward()
    model = ParallelGPT.from_gpt(seeded(False), group=group, sequence_parallel=True)
    backward(model, batch, is_summed=False)
    return gradient_difference(model, snapshot_gradients(whole))


def with_padding_in_the_softmax(group):
    """Sabotage: the loss takes the columns of padding for tokens."""
    model, batch = ParallelGPT.from_gpt(seeded(False), group=group), batches()[0]
    loss = module.vocabulary_parallel_cross_entropy(model(batch[0]), batch[1], group=group)
    return abs(loss - next_token_loss(seeded(False)(batch[0]), batch[1])).item()


def built(group):
    found, (tokens, targets) = {}, batches()[0]
    torch.manual_seed(dist.get_rank())  # ranks seeded differently
    config = GPTConfig(**SIZES, num_layers=1)
    found["seeded"] = ParallelGPT(config, seed=5, group=group).full_params()
    found["drawn"] = ParallelGPT(config, group=group).full_params()
    whole = seeded(True)
    whole.blocks[0].requires_grad_(False)
    model = ParallelGPT.from_gpt(whole, group=group)
    found["storage"] = all(p.untyped_storage().nbytes() == p.nbytes for p in model.parameters())
    found["frozen"] = {name for name, p in model.named_parameters() if not p.requires_grad}
    before = list(model.parameters())
    other = seeded(False) if not model.config.tie_embeddings else whole_gpt(True)
    model.load_full(other.state_dict())  # with the tied weight under both of its names
    found["loaded"] = max_difference(model.full_params(), dict(other.named_parameters())).value
    found["same parameters"] = all(a is b for a, b in zip(before, model.parameters(), strict=True))
    found["tied"] = model.head.projection.weight is model.embedding.token.weight
    for name, options in {"dropout": {}, "dropout, sequence": {"sequence_parallel": True}}.items():
        tracker = tensor_parallel_manual_seed(3, group=group)
        config = GPTConfig(**SIZES, num_layers=1, dropout=0.2)
        dropping = ParallelGPT(config, seed=5, random_states=tracker, group=group, **options)
        found[name] = dropping.loss(tokens, targets).item(), dropping.eval().loss(tokens, targets).item()
    found["options"] = model.loss(tokens, targets.clone().fill_(-1), ignore_index=-1, reduction="sum").item()
    return found


def errors(group):
    tokens, targets = batches()[0]
    model = ParallelGPT.from_gpt(seeded(False), group=group)
    by_tokens = ParallelGPT.from_gpt(seeded(False), sequence_parallel=True, group=group)
    state = dict(seeded(False).named_parameters())
    part = {name: model.local_part(name, full) for name, full in state.items()}
    return [
        message_of(lambda: ParallelGPT(GPTConfig(num_heads=1, hidden_size=24), group=group)),
        message_of(lambda: ParallelGPT(GPTConfig(**SIZES, num_layers=1, dropout=0.1), group=group)),
        message_of(lambda: model.load_full(part)),
        message_of(lambda: model.load_full({"x": tokens})),
        message_of(lambda: model(torch.cat([tokens, tokens], 1))),
        message_of(lambda: by_tokens(tokens[:, :11])),
        message_of(lambda: model.loss(tokens, targets + 1)),
        message_of(lambda: model.loss(tokens + 1, targets)),
    ]


def others():
    def case(group):
        return without_sum(group), with_padding_in_the_softmax(group), built(group), errors(group)

    return in_groups(case)


@pytest.fixture(scope="module")
def ranks():
    return run_ranks(others, 4, device="cpu")


def test_losses_gradients_and_trained_parameters_on_another_device(other_device):
    def on_device():
        return {case: trained(*case, None) for case in (("gathered again", "sgd"), ("tied, sequence", "adam"))}

    for found in run_ranks(on_device, 2, device=other_device):
        assert len(found) == 2 and max(found.values()) < TOLERANCE


def test_losses_gradients_and_trained_parameters():
    for of_sizes in run_ranks(parity, 4, device="cpu"):
        for size, found in of_sizes.items():
            assert len(found) == len(OPTIONS) + 1
            assert max(found.values()) < TOLERANCE, (size, found)


def test_two_reductions_a_block_each_way():
    record = run_ranks(one_step, 4, device="cpu", record=True).record.select(rank=0)
    whole, of_tokens = B * T * C * 8, B * T * 8
    for size in (2, 4):
        blocks, part = 2 * L + 1, whole // size  # reductions each way: of the blocks, and of the embedding or the head
        expected = {
            ("forward", "all_reduce", whole): blocks,
            ("backward", "all_reduce", whole): blocks,
            ("forward", "reduce_scatter_tensor", whole): blocks,
            ("forward", "all_gather_into_tensor", part): blocks,
            ("backward", "all_gather_into_tensor", part): 2 * blocks,  # those of the outputs, and the inputs again
            ("backward", "reduce_scatter_tensor", whole): blocks,
            ("", "all_reduce", of_tokens): 2,  # two losses: the largest logits
            ("", "all_reduce", 2 * of_tokens): 2,  # targets' logits, and sums
            ("", "all_reduce", 8 * ((T + 2) * C + 6 * C * L)): 1,  # positions, norms, biases under sequence parallelism
        }
        group = ",".join(map(str, range(size)))
        assert Counter((e.phase, e.op, e.nbytes) for e in record if e.group == group) == expected


def test_each_fault_shows(ranks):
    for of_sizes in ranks:
        for size, (norms, softmax, _, _) in of_sizes.items():
            if size > 1:
                assert norms > 1e-4 and softmax > 1e-2, (size, norms, softmax)


def test_seeds_ties_and_dropout(ranks):
    torch.manual_seed(5)
    whole = dict(GPT(GPTConfig(**SIZES, num_layers=1)).named_parameters())
    first = ranks[0][1][2]
    for of_sizes in ranks:
        for size, (_, _, found, _) in of_sizes.items():
            assert max_difference(found["seeded"], whole).value == 0.0
            assert max_difference(found["drawn"], first["drawn"]).value == 0.0
            assert found["storage"] and found["same parameters"] and found["tied"] and found["loaded"] == 0.0
            assert len(found["frozen"]) == 16 and all(name.startswith("blocks.0.") for name in found["frozen"])
            for name in ("dropout", "dropout, sequence"):
                assert found[name] == ranks[0][size][2][name]  # one loss on all ranks
                assert found[name][0] != found[name][1]  # elements were dropped
            assert found["options"] == 0.0
    assert max_difference(first["drawn"], first["seeded"]).value > 0.0


def test_bad_input(ranks):
    for of_sizes in ranks:
        for size, (_, _, _, messages) in of_sizes.items():
            heads, dropout, part, names, length, tokens, target, token = messages
            if size > 1:
                assert "dropout=0.1 needs random_states=tensor_parallel_manual_seed(seed, group=group)" in dropout
                assert f"1 heads cannot be divided among {size} ranks" in heads
                assert "is (13, 24) in the whole model; got" in part and "put together first" in part
                assert "11 tokens of a sequence cannot be divided among" in tokens
            assert "the whole ParallelGPT has 21 parameters; missing: ['blocks.0" in names and "unknown: ['x']" in names
            assert "the sequence has 24 tokens, but context_length is 12" in length
            assert "target 13 is outside the vocabulary of 13" in target
            assert "token 13 is outside the vocabulary of 13" in token
