"""SwiGLU over ranks, gate and up in one weight, beside the undivided one; and the weight cut as it must not be."""

import pytest
import torch

import dtlearn
from dtlearn.tensor_parallel.layers.swiglu import FusedColumnParallelLinear, ParallelSwiGLU, SwiGLU
from tests.devices import run_ranks
from tests.sharing.groups import calls_of, in_groups
from tests.tensor_parallel.parity import errors, part, reference, tensors

B, T, C, F = 2, 12, 12, 24
TOKENS = B * T * C * 8
OPTIONS = [{}, {"overlap": True}, {"sequence_parallel": True}]
PAIR = [("all_reduce", TOKENS)] * 2


def undivided():
    torch.manual_seed(3)
    return SwiGLU(C, F).double().to(dtlearn.device())


def all_options():
    whole = undivided()
    x, gradient = tensors((B, T, C), (B, T, C))
    out, of_x, of_weights = reference(whole, x, gradient)
    fused = torch.stack([of_weights["gate.weight"], of_weights["up.weight"]])
    expected = out, of_x, {"gate_up.weight": fused, "down.weight": of_weights["down.weight"]}

    def case(group):
        found = []
        for options in OPTIONS:
            dim = 1 if options.get("sequence_parallel") else None
            layer = ParallelSwiGLU.from_swiglu(whole, group=group, **options)
            found.append(errors(layer, x, gradient, expected, group, x_dim=dim, out_dim=dim, reduce=False))
        full = layer.full_params()
        assert torch.equal(full["gate_up.weight"], torch.stack([whole.gate.weight, whole.up.weight]))
        # The fused weight in t contiguous parts: of two ranks the first has all of gate, the second all of up.
        contiguous = torch.cat([whole.gate.weight, whole.up.weight]).detach()
        layer = ParallelSwiGLU.from_swiglu(whole, group=group)
        layer.gate_up.load_full({"weight": contiguous})
        again = errors(layer, x, gradient, expected, group)
        layer.gate_up.weight.data = part(contiguous, 0, group).view_as(layer.gate_up.weight)
        thirds = errors(layer, x, gradient, expected, group)
        return found, again, thirds, repr(layer)

    return in_groups(case)


def refused():
    with pytest.raises(ValueError, match="10 feed-forward features cannot be divided among 4 ranks"):
        ParallelSwiGLU(4, 10)
    with pytest.raises(ValueError, match="leave out sequence_parallel"):
        ParallelSwiGLU(4, 8, overlap=True, sequence_parallel=True)
    with pytest.raises(ValueError, match=r"gate above up is \(16, 4\) in the whole layer; got \(4, 4\)"):
        FusedColumnParallelLinear(4, 8).load_full({"weight": torch.zeros(4, 4)})


@pytest.fixture(scope="module")
def on_four():
    return run_ranks(lambda: (refused(), all_options())[1], 4, device="cpu", record=True)


def test_parity_on_another_device(other_device):
    test_parity(run_ranks(all_options, 2, device=other_device))


def test_parity(on_four):
    for of_sizes in on_four:
        for found, again, *_ in of_sizes.values():
            assert max(max(errors.values()) for errors in [*found, again]) < 1e-12


def test_a_fused_weight_in_contiguous_parts_is_another_network(on_four):
    for of_sizes in on_four:
        for size, (_, _, contiguous, _) in of_sizes.items():
            assert (contiguous["output"] > 1e-2) == (size > 1), "with one rank the cut is none, and nobody notices"


def test_one_reduction_each_way(on_four):
    for size in (2, 3, 4):
        gather = ("all_gather_into_tensor", TOKENS // size)
        tokens = [gather, ("reduce_scatter_tensor", TOKENS)] * 2
        assert calls_of(on_four.record, size)[:8] == [*PAIR, *PAIR, *tokens]


def test_initial_weights_do_not_depend_on_t():
    def drawn():
        def case(group):
            generator = torch.Generator().manual_seed(5)
            return ParallelSwiGLU(4, 12, generator=generator, group=group).full_params()

        return in_groups(case)

    run = run_ranks(drawn, 4, device="cpu")
    once = run[0][1]
    assert {name: tensor.shape for name, tensor in once.items()} == {
        "gate_up.weight": (2, 12, 4),
        "down.weight": (4, 12),
    }
    for of_sizes in run:
        for whole in of_sizes.values():
            assert all(torch.equal(whole[name], tensor) for name, tensor in once.items())


def test_a_layer_shows_its_part(on_four):
    text = on_four[1][2][3]
    assert (
        "(gate_up): FusedColumnParallelLinear(weight[2, F_t, C]: (2, 12, 12) of (2, 24, 12), rank 1 of t = 2)" in text
    )
