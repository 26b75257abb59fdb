"""What the checks of chapter 7 expect is what torch does."""

import functools
from types import SimpleNamespace

import pytest
import torch

from dtlearn.checks.ch07_mixed_precision import (
    accumulate_with_scaling,
    agree_on_overflow,
    bug_hunt,
    clip_over_ranks,
    format_limits,
    loss_scaler,
    master_weights,
    round_to_bf16,
)
from dtlearn.checks.ch07_mixed_precision._wrong_scalers import MISTAKES
from dtlearn.grading.judging.compare import difference

RANKS = 1


def cases(module, ranks=RANKS):
    """The cases of a check, each with its inputs."""
    return [(case, module.CHECK.inputs(case)) for case in module.CHECK.all_cases(ranks, seed=3)]


@pytest.mark.parametrize(
    ("bits", "dtype", "whole"),
    [
        ((5, 10), torch.float16, torch.int16),
        ((8, 7), torch.bfloat16, torch.int16),
        ((5, 2), torch.float8_e5m2, torch.uint8),
        ((8, 23), torch.float32, torch.int32),
        ((4, 3), torch.float8_e4m3fn, torch.uint8),  # the one without infinity
    ],
)
def test_the_limits_are_those_of_torch(bits, dtype, whole):
    given = dict(zip(("exponent_bits", "mantissa_bits"), bits, strict=True)) | {"has_infinity": bits != (4, 3)}
    (limits,) = format_limits.expected(SimpleNamespace(), [given])
    info = torch.finfo(dtype)
    assert (limits["largest"], limits["smallest_normal"], limits["epsilon"]) == (info.max, info.tiny, info.eps)
    assert limits["smallest_subnormal"] == torch.tensor([1], dtype=whole).view(dtype).double().item()


def test_the_rounding_is_that_of_torchs_cast():
    for case, given in cases(round_to_bf16):
        for right, i in zip(round_to_bf16.expected(case, given), given, strict=True):
            x = i["x"].mT if i["transposed"] else i["x"]
            cast, wanted = (t.contiguous().view(torch.int32) for t in (x.bfloat16().float(), right))
            assert bool(((cast == wanted) | (x.isnan() & right.isnan())).all()), case.name


@functools.cache
def trained(module, *mistake):
    """What training comes to with a mistake, or none, for each rank of each case; several tests look at it."""
    return [[module.trained(i, *mistake) for i in given] for _, given in cases(module)]


@pytest.mark.parametrize("mistake", master_weights.MISTAKES)
def test_each_mistake_with_masters_shows_in_some_case(mistake):
    runs = zip(trained(master_weights), trained(master_weights, mistake), strict=True)
    assert not all(master_weights._alike([a], [b]) for right, wrong in runs for a, b in zip(right, wrong, strict=True))


def test_no_case_gives_a_mistake_with_masters_another_name():
    """What shows in several cases is told in each: a second name would send the learner looking for a second bug."""
    for number, (case, _) in enumerate(cases(master_weights)):
        right = trained(master_weights)[number]
        made = {mistake: trained(master_weights, mistake)[number] for mistake in master_weights.MISTAKES}
        shows = [mistake for mistake, run in made.items() if not master_weights._alike(run, right)]
        for mistake in shows:
            told = next(one for one in shows if master_weights._alike(made[one], made[mistake]))
            codes = {master_weights.MISTAKES[one][0] for one in (told, mistake)}
            assert len(codes) == 1, f"{case.name}: {mistake} is told as {told}"


def test_the_scaler_has_the_trajectory_of_torchs():
    for case, given in cases(loss_scaler):
        for i in given:
            run = loss_scaler.on_rank(lambda **options: torch.amp.GradScaler("cpu", **options), **i)
            assert run["used"] and not difference(loss_scaler.trained(i), run["run"], 1e-6, 0), case.name
            assert run["grows_after"] == (2000 if i["by_default"] else 0)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_of_a_scaler_shows_in_some_case(mistake):
    runs = zip(trained(loss_scaler), trained(loss_scaler, mistake), strict=True)
    assert any(difference(a, b, 1e-5, 1e-7) for right, wrong in runs for a, b in zip(right, wrong, strict=True))


def test_no_case_gives_a_mistake_of_a_scaler_another_name():
    for number, (case, _) in enumerate(cases(loss_scaler)):
        right = trained(loss_scaler)[number]
        made = {mistake: trained(loss_scaler, mistake)[number] for mistake in MISTAKES}
        shows = [mistake for mistake, run in made.items() if not loss_scaler._alike(run, right)]
        for mistake in shows:
            told = next(one for one in shows if loss_scaler._alike(made[one], made[mistake]))
            codes = {MISTAKES[one][0] for one in (told, mistake)}
            is_missed = MISTAKES[told][0] == "DTL-VALUE-NOT-SKIPPED" and "MISSED" in MISTAKES[mistake][0]  # also true
            assert len(codes) == 1 or is_missed, f"{case.name}: {mistake} is told as {told}"


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("module", [agree_on_overflow, clip_over_ranks, accumulate_with_scaling, bug_hunt])
def test_each_mistake_shows_in_some_case(module, ranks):
    shows: dict[tuple[str, str], bool] = {}
    for case, given in cases(module, ranks):
        right, check = module.expected(case, given), module._VALUES
        for wrong in module.mistakes(case, given):
            differs = difference(right, list(wrong.values), check.rtol, check.atol) is not None
            shows[wrong.code, wrong.text] = shows.get((wrong.code, wrong.text), False) or differs
    alone = {"DTL-VALUE-ONE-DECIDES", "DTL-VALUE-OWN-OVERFLOW", "DTL-VALUE-ALL-RANKS", "DTL-VALUE-COUNTED"}
    alone |= {"DTL-VALUE-MAJORITY"}  # one rank has nobody to agree with
    hidden = {code for (code, _), seen in shows.items() if not seen}
    assert shows and hidden <= (alone if ranks == 1 else set())


@pytest.mark.parametrize("ranks", [1, 3])
def test_one_decision_is_that_of_isfinite_on_all_values(ranks):
    for case, given in cases(agree_on_overflow, ranks):
        for k, step in enumerate(zip(*(i["gradients"] for i in given), strict=True)):
            values = torch.cat([torch.zeros(1), *(g.flatten() for own in step for g in own if g is not None)])
            decisions = [list(rank.values())[k] for rank in agree_on_overflow.expected(case, given)]
            assert decisions == [not values.isfinite().all()] * ranks, (case.name, k)


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_clipping_is_that_of_torch_on_one_process(ranks):
    for case, given in cases(clip_over_ranks, ranks):
        right = clip_over_ranks.expected(case, given)
        for k, steps in enumerate(zip(*(i["steps"] for i in given), strict=True)):
            lists = [*(step["shards"] for step in steps), steps[0]["replicated"]]
            whole = [torch.nn.Parameter(torch.zeros_like(g)) for own in lists for g in own if g is not None]
            for parameter, g in zip(whole, (g for own in lists for g in own if g is not None), strict=True):
                parameter.grad = g / steps[0]["scale"]
            norm = torch.nn.utils.clip_grad_norm_(whole, steps[0]["max_norm"])
            results = [list(rank.values())[k] for rank in right]
            assert {result["norm"] is None for result in results} == {not norm.isfinite()}
            if norm.isfinite():
                parts = [*(result["shards"] for result in results), results[0]["replicated"]]
                clipped = [g for own in parts for g in own if g is not None]
                assert not difference([p.grad for p in whole], clipped, 1e-4, 1e-5), (case.name, k)
                assert not difference([norm.item()] * ranks, [result["norm"] for result in results], 1e-5, 0)


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_updates_are_those_of_torch_on_one_process(ranks):
    for case, given in cases(accumulate_with_scaling, ranks):
        numbers, right = given[0]["numbers"], accumulate_with_scaling.expected(case, given)
        model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        model.load_state_dict(given[0]["weights"])
        optimizer = torch.optim.SGD(model.parameters(), lr=numbers["lr"], momentum=numbers["momentum"])
        scaler = torch.amp.GradScaler("cpu", init_scale=numbers["scale"], growth_interval=numbers["growth"])
        for u, expected in enumerate(right[0].values()):
            batches = [pair for i in given for pair in i["updates"][u]]
            optimizer.zero_grad()
            for x, y in batches:
                out = model(x)
                out.register_hook(lambda g: torch.where(g.abs() > accumulate_with_scaling.LARGEST, g * torch.inf, g))
                scaler.scale(torch.nn.functional.mse_loss(out, y) / len(batches)).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), given[0]["max_norm"])
            scaler.step(optimizer)
            scaler.update()
            result = {"parameters": dict(model.state_dict()), "scale": scaler.get_scale()}
            assert not difference(expected, result, 1e-4, 1e-5), (case.name, u)


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_repaired_loop_is_one_process_with_all_data(ranks):
    for case, given in cases(bug_hunt, ranks):
        numbers, scales = given[0]["numbers"], []
        model = torch.nn.Linear(bug_hunt._FEATURES, 1)
        model.load_state_dict({"weight": given[0]["weight"], "bias": given[0]["bias"]})
        scale, rate = numbers["scale"], numbers["lr"]
        for batches in zip(*(i["batches"] for i in given), strict=True):
            model.zero_grad()
            for x, y in batches:  # the mean over ranks, as a sum of float32 gradients from float16 passes
                with torch.autocast("cpu", dtype=torch.float16):
                    out = model(x)
                (torch.nn.functional.mse_loss(out.float(), y) * scale).backward()
            gradients = [p.grad / scale / ranks for p in model.parameters()]
            norm = torch.nn.utils.get_total_norm(gradients)
            if norm.isfinite():
                for parameter, g in zip(model.parameters(), gradients, strict=True):
                    parameter.data -= rate * g * min(1.0, numbers["max_norm"] / norm.item())
                rate *= numbers["gamma"]
            else:
                scale /= 2
            scales.append(scale)
        result = {"scales": scales, "parameters": list(model.parameters())}
        check = bug_hunt._VALUES
        assert not difference(bug_hunt.expected(case, given)[0], result, check.rtol, check.atol), case.name


@pytest.mark.parametrize(("kind", "halved"), [("weight", 0), ("NaN", 1), ("bias", 2), ("", 3)])
def test_an_overflow_is_of_its_kind(kind, halved):
    weight, x = torch.tensor([[0.1, -0.2, 0.05]]), torch.tensor([[0.5, 1.0, -0.3]]).repeat(4, 1)
    x, y = bug_hunt._overflowing(kind, weight, x, torch.zeros(4, 1))
    model = torch.nn.Linear(3, 1)
    model.load_state_dict({"weight": weight, "bias": torch.zeros(1)})
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(x)
    (torch.nn.functional.mse_loss(out.float(), y) * 1024.0 / 2**halved).backward()
    seen = {name: p.grad for name, p in model.named_parameters()}
    assert [name for name, g in seen.items() if not g.isfinite().all()] == ([kind] if kind in seen else [*seen])
    assert all(g.isnan().all() for g in seen.values()) == (kind == "NaN")
