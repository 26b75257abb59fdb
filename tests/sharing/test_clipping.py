"""One clipping: torch's on the whole gradient, however it is divided, for every norm, over one group and over two."""

import math

import pytest
import torch
import torch.distributed as dist
from torch import nn

import dtlearn
from dtlearn.sharing.clipping import clip_grad_norm_, count_once, global_norm, local_norm
from tests.data_parallel.runs import message_of
from tests.devices import run_ranks
from tests.sharing.groups import in_groups

NORMS = (1.0, 2.0, 3.0, math.inf)
MAX_NORM = 0.5  # shorter than the gradient in every norm
SHAPES = {"a": (3, 5), "b": (4,), "scale": (), "none": (0, 2), "c": (2, 3, 2), "idle": (3,)}


def parameters(seed=0, dtype=torch.float64):
    """By name, with gradients but for `idle`."""
    generator = torch.Generator().manual_seed(seed)
    named = {
        name: nn.Parameter(torch.zeros(shape, dtype=dtype, device=dtlearn.device())) for name, shape in SHAPES.items()
    }
    for name, parameter in named.items():
        if name != "idle":
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.grad = drawn.to(parameter.device, dtype)
    return named


def cut(parameter, part, parts):
    """One of several pieces, 1-D, the last ones shorter or empty."""
    piece = nn.Parameter(torch.tensor_split(parameter.detach().flatten(), parts)[part].clone())
    if parameter.grad is not None:
        piece.grad = torch.tensor_split(parameter.grad.flatten(), parts)[part].clone()
    return piece


def torchs(parameters, norm_type):
    """Torch's norm of these, which are clipped by it; its infinite norm refuses an empty gradient."""
    norm = nn.utils.clip_grad_norm_([p for p in parameters if p.numel()], MAX_NORM, norm_type)
    assert norm > MAX_NORM
    return norm


def apart(own, exact):
    """How far the gradients of these parameters are from those."""
    assert own.keys() == exact.keys()
    differences = [0.0]
    for name, parameter in own.items():
        assert (parameter.grad is None) == (exact[name].grad is None)
        if parameter.grad is not None and parameter.grad.numel():
            differences.append((parameter.grad - exact[name].grad).abs().max().item())
    return max(differences)


# On one rank.


@pytest.mark.parametrize("norm_type", NORMS)
@pytest.mark.parametrize("factor", [0.01, 1.0, 1e4])
def test_on_one_rank_it_is_torchs_to_the_last_bit(norm_type, factor):
    mine, theirs = parameters(dtype=torch.float32), parameters(dtype=torch.float32)
    del mine["none"], theirs["none"]  # torch's infinite norm refuses an empty gradient
    for named in (mine, theirs):
        for parameter in named.values():
            if parameter.grad is not None:
                parameter.grad *= factor
    norms = [
        clip_grad_norm_(mine.values(), 1.0, norm_type),
        nn.utils.clip_grad_norm_(theirs.values(), 1.0, norm_type),
    ]
    assert torch.equal(*norms) and norms[0].dtype == torch.float32
    assert all(torch.equal(mine[name].grad, theirs[name].grad) for name in mine if name != "idle")


@pytest.mark.parametrize("norm_type", NORMS)
def test_nothing_that_is_empty_counts_and_what_comes_twice_counts_once(norm_type):
    named = parameters()
    exact = global_norm(named.values(), norm_type)
    assert torch.equal(global_norm([*named.values(), named["a"], named["c"]], norm_type), exact)
    assert global_norm([named["none"], named["idle"]], norm_type).item() == 0.0
    assert global_norm([], norm_type).item() == clip_grad_norm_([], 1.0, norm_type).item() == 0.0
    before = named["a"].grad.clone()
    clip_grad_norm_([named["a"], named["a"]], 0.5, norm_type)
    assert local_norm([named["a"]], norm_type).item() == pytest.approx(0.5, rel=1e-5)
    assert torch.allclose(named["a"].grad / before, named["a"].grad[0, 0] / before[0, 0])


def test_one_parameter_stands_for_a_list_of_one():
    mine, theirs = parameters()["a"], parameters()["a"]
    assert clip_grad_norm_(mine, 0.5) == nn.utils.clip_grad_norm_(theirs, 0.5) and torch.equal(mine.grad, theirs.grad)


def test_what_does_not_count_is_scaled_too():
    named = parameters()
    norm = clip_grad_norm_(named.values(), 0.5, counted=[named["b"]])
    assert torch.equal(norm, parameters()["b"].grad.norm())
    assert torch.allclose(named["a"].grad, parameters()["a"].grad * (0.5 / norm))


def test_16_bit_gradients_are_added_up_in_float32():
    many = nn.Parameter(torch.zeros(100, dtype=torch.float16))
    many.grad = torch.full_like(many, 60_000)
    assert global_norm([many]).item() == pytest.approx(600_000)
    assert global_norm([many], 1.0).item() == pytest.approx(6_000_000)


def test_what_is_no_norm_is_refused():
    for wrong in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="max_norm must be positive; got"):
            clip_grad_norm_(parameters().values(), wrong)
        with pytest.raises(ValueError, match=r"norm_type must be positive, such as 1, 2 or math\.inf; got"):
            clip_grad_norm_(parameters().values(), 1.0, wrong)


# Over ranks.


def divided(group):
    """Every parameter in pieces, but one that all ranks have: by norm, how far it is from torch's; and sabotage."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)

    def parts(whole):
        return {name: p if name == "b" else cut(p, rank, size) for name, p in whole.items()}

    found = {}
    for norm_type in NORMS:
        whole, own = parameters(), parts(parameters())
        counted = count_once(list(own.values()), [own["b"]], group=group)
        norm = clip_grad_norm_(own.values(), MAX_NORM, norm_type, counted=counted, groups=[group])
        difference = abs(norm - torchs(whole.values(), norm_type)).item()
        found[norm_type] = max(difference, apart(own, parts(whole)))
    own, exact = parts(parameters()).values(), global_norm(parameters().values())
    found["all count"] = abs(global_norm(own, groups=[group]) - exact).item()
    found["alone"] = abs(global_norm(own) - exact).item()
    found["empty"] = global_norm([], groups=[group]).item(), global_norm([], math.inf, groups=[group]).item()
    return found


def not_finite(group):
    """By value and norm: the norm if the last rank has it; and what is said."""
    found = {}
    last = dist.get_rank(group) == dist.get_world_size(group) - 1
    for value in (math.inf, -math.inf, math.nan):
        for norm_type in NORMS:
            piece = nn.Parameter(torch.zeros(2))
            piece.grad = torch.tensor([1.0, value if last else 2.0])
            found[str(value), norm_type] = global_norm([piece], norm_type, groups=[group]).item()
    found["said"] = message_of(lambda: clip_grad_norm_([piece], 1.0, groups=[group], error_if_nonfinite=True))
    return found


def two_axes(norm_type):
    """Two stages of two tensor-parallel ranks: what is divided, alike in a stage, and tied over the stages."""
    stage, part = divmod(dist.get_rank(), 2)
    tp = [dist.new_group([0, 1]), dist.new_group([2, 3])][stage]
    pp = [dist.new_group([0, 2]), dist.new_group([1, 3])][part]
    whole, tied = [parameters(seed) for seed in (1, 2)], parameters(3)["a"]
    alike = ("b", "scale")

    def parts(named):
        return {name: p if name in alike else cut(p, part, 2) for name, p in named.items()}

    # The tied one is on both stages, as a weight that embedding and head share.
    own = parts(parameters(stage + 1) | {"tied": parameters(3)["a"]})
    counted = [own[name] for name in own if (name not in alike or part == 0) and (name != "tied" or stage == 0)]
    within_stage = global_norm(own.values(), norm_type, counted=counted, groups=[tp])
    norm = clip_grad_norm_(own.values(), MAX_NORM, norm_type, counted=counted, groups=[tp, pp])
    exact = torchs([*whole[0].values(), *whole[1].values(), tied], norm_type)
    difference = max(abs(norm - exact).item(), apart(own, parts(whole[stage] | {"tied": tied})))
    return difference, abs(within_stage - exact).item()


def every_case():
    def case(group):
        return {"divided": divided(group), "not finite": not_finite(group)}

    return in_groups(case), {norm_type: two_axes(norm_type) for norm_type in NORMS}


def test_it_is_torchs_on_another_device(other_device):
    for of_sizes in run_ranks(lambda: in_groups(divided), 2, device=other_device):
        for found in of_sizes.values():
            assert max(found[norm_type] for norm_type in NORMS) < 1e-12 and found["empty"] == (0.0, 0.0)


@pytest.fixture(scope="module")
def ranks():
    return run_ranks(every_case, 4, device="cpu", record=True)


@pytest.mark.parametrize("norm_type", NORMS)
def test_every_norm_is_that_of_the_whole_gradient(ranks, norm_type):
    for of_sizes, _ in ranks:
        for found in of_sizes.values():
            assert found["divided"][norm_type] < 1e-12
            assert found["divided"]["empty"] == (0.0, 0.0)


def test_what_counts_on_every_rank_or_on_one_alone_is_found(ranks):
    for of_sizes, _ in ranks:
        for size, found in of_sizes.items():
            if size > 1:
                assert found["divided"]["all count"] > 0.1 and found["divided"]["alone"] > 0.1


@pytest.mark.parametrize("norm_type", NORMS)
def test_a_model_divided_along_two_axes_is_one_gradient(ranks, norm_type):
    for _, of_norms in ranks:
        assert of_norms[norm_type][0] < 1e-12
    assert max(of_norms[norm_type][1] for _, of_norms in ranks) > 0.05  # a stage alone


def test_a_value_that_is_not_finite_reaches_all_ranks(ranks):
    """gloo's own maximum loses a NaN unless it is on the first rank, and ranks then clip by different norms."""
    for of_sizes, _ in ranks:
        for found in of_sizes.values():
            for norm_type in NORMS:
                assert found["not finite"]["inf", norm_type] == math.inf
                assert found["not finite"]["-inf", norm_type] == math.inf
                assert math.isnan(found["not finite"]["nan", norm_type])
            assert found["not finite"]["said"] == (
                "RuntimeError: the norm of the gradients of all ranks is nan: a step that a loss scaler is to skip, "
                "or a loss that is not finite on some rank. Leave error_if_nonfinite=False with a scaler"
            )


def test_one_number_is_sent_over_each_group(ranks):
    def sent(group):
        return [(e.op, e.nbytes) for e in ranks.record.select(rank=0) if e.group == group and e.op != "barrier"]

    # four norms and the sabotage in float64, then no parameters twice, 3 * 4 values and what is said in float32
    of_one = [("all_reduce", 8)] * 5 + [("all_reduce", 4)] * 15
    assert sent("0,1,2") == of_one
    assert sent("0,2") == [("all_reduce", 8)] * len(NORMS)
