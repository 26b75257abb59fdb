"""What the checks of ch09.global_norm, ch09.plan and ch09.bug_hunt expect is what torch does."""

import math

import pytest
import torch

from dtlearn.checks.ch09_zero import bug_hunt, global_norm, plan


@pytest.mark.parametrize("ranks", [1, 4])
def test_the_global_norm_is_that_of_torch_on_the_whole_model(ranks):
    cases = global_norm.CHECK.all_cases(ranks, seed=3)
    assert len(cases) >= 13
    for case in cases:
        given = global_norm.inputs(case)
        expected = global_norm.expected(case, given)
        for group in global_norm.models(case):
            parts = [(rank, part) for rank in group for part in global_norm.gradients_of(given[rank])]
            whole = [(None, part) for part in given[group[0]]["replicated"]]
            gradients = [(rank, part) for rank, part in (*parts, *whole) if part is not None]
            model = [torch.nn.Parameter(torch.zeros_like(part)) for _, part in gradients]
            for parameter, (_, gradient) in zip(model, gradients, strict=True):
                parameter.grad = gradient.clone()
            norm = torch.nn.utils.clip_grad_norm_(model, given[group[0]]["max_norm"])
            if math.isinf(expected[group[0]]["norm"]):
                assert not norm.isfinite()
                continue
            torch.testing.assert_close(norm.item(), expected[group[0]]["norm"], rtol=1e-5, atol=1e-9)
            for rank in group:
                own = [p.grad for p, (r, _) in zip(model, gradients, strict=True) if r == rank]
                right = [part for part in expected[rank]["shards"] if part is not None]
                torch.testing.assert_close(own, right)


def test_the_example_of_the_plan_is_what_is_counted():
    counts = plan.count({"units": [5, 7], "num_ranks": 4, "accumulation": 1})
    rows = [[32, 32, 192, 0, 48], [32, 32, 48, 0, 48], [32, 8, 48, 16, 48], [8, 8, 48, 48, 72]]
    assert [list(stage.values()) for stage in counts] == rows


def test_the_plan_has_the_bytes_of_the_paper():
    n, psi = 64, 7_500_032  # a multiple of N: nothing is padded
    counts = plan.count({"units": [psi], "num_ranks": n, "accumulation": 1})
    held = [sum(stage[key] for key in ("weights", "gradients", "optimizer")) for stage in counts]
    assert held == [16 * psi, 4 * psi + 12 * psi // n, 2 * psi + 14 * psi // n, 16 * psi // n]
    assert [stage["sent"] / (2 * psi * (n - 1) / n) for stage in counts] == [2, 2, 2, 3]


def test_the_plans_name_several_stages_and_none():
    cases = plan.CHECK.all_cases(1, seed=3)
    fits = {plan.expected(case, plan.inputs(case))[0]["smallest"] for case in cases}
    assert fits == {0, 1, 3, None}


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_bug_hunt_expects_what_one_process_does_with_all_data(ranks):
    cases = [case for case in bug_hunt.CHECK.all_cases(ranks, seed=3) if case.params.get("look") in (None, "momentum")]
    assert len(cases) == 3
    for case in cases:
        given = bug_hunt.inputs(case)
        start, own = given[0]["start"], given[0]
        model = torch.nn.Linear(3, 1)
        model.load_state_dict({"weight": start[None, :3], "bias": start[3:]})
        optimizer = torch.optim.SGD(model.parameters(), lr=own["lr"], momentum=0.9)
        for step in range(len(own["batches"])):
            x, y = (torch.cat([one["batches"][step][k] for one in given]) for k in range(2))
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), own["max_norm"])
            optimizer.step()
        state = [optimizer.state[p]["momentum_buffer"].flatten() for p in model.parameters()]
        have = {
            "momentum": torch.cat(state),
            "parameters": torch.cat([p.detach().flatten() for p in model.parameters()]),
        }
        ((name, want),) = bug_hunt.expected(case, given)[0].items()
        torch.testing.assert_close(have[name], want, rtol=1e-4, atol=1e-5)
