"""The divided embedding beside `nn.Embedding`: to the bit, at 1 to 4 ranks, with and without padding."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

import dtlearn
from dtlearn.tensor_parallel.vocabulary import embedding as module
from dtlearn.tensor_parallel.vocabulary.embedding import VocabularyParallelEmbedding, own_rows
from tests.data_parallel.runs import message_of
from tests.devices import run_ranks
from tests.sharing.groups import calls_of, in_groups

V, C, B, T = 10, 3, 2, 12  # 10 tokens: padded with 3 and with 4 ranks
NBYTES = B * T * C * 8


def whole_embedding(requires_grad=True):
    torch.manual_seed(0)
    full = nn.Embedding(V, C).double()
    others = torch.randint(V, (B, T)), torch.randn(B, T, C, dtype=torch.float64)
    return tuple(value.to(dtlearn.device()) for value in (full.requires_grad_(requires_grad), *others))


def beside_the_whole(layer, group):
    """Whether output and weight gradient have the bits of the whole embedding's."""
    full, tokens, gradient = whole_embedding()
    expected = full(tokens)
    expected.backward(gradient)
    out, rank, size = layer(tokens), dist.get_rank(group), dist.get_world_size(group)
    if layer.sequence_parallel:
        expected, gradient = (x.chunk(size, 1)[rank] for x in (expected, gradient))
    out.backward(gradient)
    rows = own_rows(full.weight.grad, size, rank)
    return torch.equal(out, expected) and torch.equal(layer.weight.grad, rows)


def with_unmasked_rows(layer, group):
    """Sabotage: row 0 of each rank for every token of another one."""
    rows_of = module.local_rows
    module.local_rows = lambda *args: (rows_of(*args)[0], torch.ones_like(args[0], dtype=torch.bool))
    try:
        return beside_the_whole(layer, group)
    finally:
        module.local_rows = rows_of


def every_case():
    torch.manual_seed(dist.get_rank())

    def case(group):
        found = {}
        full, tokens, _ = whole_embedding()
        make = VocabularyParallelEmbedding.from_embedding
        found["plain"] = beside_the_whole(make(full, group=group), group)
        found["sequence"] = beside_the_whole(make(full, sequence_parallel=True, group=group), group)
        layer = make(full, group=group)
        found["gathered"] = torch.equal(layer.full_params()["weight"], full.weight)
        found["storage"] = layer.weight.untyped_storage().nbytes() == layer.weight.nbytes
        found["shown"] = repr(layer)
        found["frozen"] = make(whole_embedding(requires_grad=False)[0], group=group).weight.requires_grad
        found["outside"] = message_of(lambda: layer(tokens + 1))
        found["part"] = message_of(lambda: layer.load_full({"weight": full.weight[:5]}))
        found["options"] = message_of(lambda: make(nn.Embedding(V, C, padding_idx=1, max_norm=2.0), group=group))
        found["sabotage"] = with_unmasked_rows(layer, group)
        torch.manual_seed(100 + dist.get_rank())  # ranks seeded differently
        here = {"device": dtlearn.device(), "group": group}
        drawn = VocabularyParallelEmbedding(V, C, **here)
        found["drawn"] = drawn.full_params()["weight"], drawn.weight.requires_grad
        generator = torch.Generator().manual_seed(7)
        found["seeded"] = VocabularyParallelEmbedding(V, C, **here, generator=generator).full_params()["weight"]
        return found

    return in_groups(case)


@pytest.fixture(scope="module")
def ranks():
    return run_ranks(every_case, 4, device="cpu", record=True)


def test_so_they_have_on_another_device(other_device):
    test_outputs_and_gradients_have_the_bits_of_the_whole(run_ranks(every_case, 2, device=other_device))


def test_outputs_and_gradients_have_the_bits_of_the_whole(ranks):
    for of_sizes in ranks:
        for found in of_sizes.values():
            assert found["plain"] and found["sequence"] and found["gathered"] and found["storage"]
            assert found["frozen"] is False


def test_without_the_mask_they_do_not(ranks):
    assert all(found["sabotage"] == (size == 1) for of_sizes in ranks for size, found in of_sizes.items())


def test_the_initial_weight_is_one_for_every_number_of_ranks(ranks):
    first, requires_grad = ranks[0][1]["drawn"]
    assert requires_grad and first.std() > 0.5
    for of_sizes in ranks:
        for found in of_sizes.values():
            assert torch.equal(found["drawn"][0], first)
            assert torch.equal(found["seeded"], ranks[0][1]["seeded"]) and not torch.equal(found["seeded"], first)


def test_one_all_reduce_forward_and_none_backward(ranks):
    assert calls_of(ranks.record, 1) == []
    for size in (2, 3, 4):
        weights = -(-V // size) * C
        assert calls_of(ranks.record, size) == [
            ("all_reduce", NBYTES),  # plain
            ("reduce_scatter_tensor", NBYTES),  # sequence parallel, forward
            ("all_gather_into_tensor", NBYTES // size),  # and backward
            ("all_gather_into_tensor", weights * 8),  # full_params
            ("all_reduce", NBYTES),  # sabotage
            ("broadcast", 8),  # a seed
            ("all_gather_into_tensor", weights * 4),
            ("all_gather_into_tensor", weights * 4),  # its generator has one
        ]


def test_what_a_layer_shows_and_refuses(ranks):
    assert ranks[3][4]["shown"] == (
        "VocabularyParallelEmbedding(10, 3, weight[V_t, C]: (3, 3), tokens 9 to 9, rank 3 of 4)"
    )
    for of_sizes in ranks:
        for found in of_sizes.values():
            assert "token 10 is outside the vocabulary of 10 tokens: a token is from 0 to 9" in found["outside"]
            assert "weight is (10, 3) in the whole embedding; got (5, 3)" in found["part"]
            assert "no such option; the embedding has {'padding_idx': 1, 'max_norm': 2.0}" in found["options"]


def test_rows_of_padding_are_zeros():
    full = torch.arange(1.0, 6.0)[:, None]
    assert [own_rows(full, 4, rank)[:, 0].tolist() for rank in range(4)] == [[1, 2], [3, 4], [5, 0], [0, 0]]


def without_a_batch():
    full, tokens = whole_embedding()[0], torch.arange(4)
    rows = VocabularyParallelEmbedding.from_embedding(full, sequence_parallel=True)(tokens)
    return torch.equal(rows, full(tokens).chunk(2)[dist.get_rank()])


def test_tokens_without_a_batch_are_divided_by_tokens():
    """(T,) -> (T/t, C), as the layers that follow take them, and not (T, C/t)."""
    assert run_ranks(without_a_batch, 2, device="cpu").values == [True, True]
