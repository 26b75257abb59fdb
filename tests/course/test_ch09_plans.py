"""What the checks of ch09.global_norm, ch09.reshard, ch09.plan and ch09.bug_hunt expect is what torch does."""

import pytest
import torch

from dtlearn.checks.ch09_zero import bug_hunt, global_norm, plan, reshard
from dtlearn.zero import plan_flat


def a_case(module, ranks):
    (case,) = module.CHECK.all_cases(ranks, seed=3)
    return case, module.CHECK.inputs(case)


@pytest.mark.parametrize("ranks", [1, 4])
def test_the_global_norm_is_that_of_torch_on_the_whole_model(ranks):
    cases = global_norm.CHECK.all_cases(ranks, seed=3)
    assert len(cases) >= 14
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
            if expected[group[0]]["norm"] == "not finite":
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
    assert list(counts.values()) == [value for row in rows for value in row]


def test_the_plan_has_the_bytes_of_the_paper():
    n, psi = 64, 7_500_032  # a multiple of N: nothing is padded
    counts = plan.count({"units": [psi], "num_ranks": n, "accumulation": 1})
    held = [sum(counts[f"{key} of stage {s}"] for key in ("weights", "gradients", "optimizer")) for s in range(4)]
    assert held == [16 * psi, 4 * psi + 12 * psi // n, 2 * psi + 14 * psi // n, 16 * psi // n]
    sent = [counts[f"sent of stage {s}"] / (2 * psi * (n - 1) / n) for s in range(4)]
    assert sent == [2, 2, 2, 3]


def test_each_plan_names_another_stage():
    _, given = a_case(plan, 1)
    jobs = given[0]["jobs"]
    totals = [[plan._held(plan.count(job), stage) for stage in range(4)] for job in jobs]
    fits = [plan._smallest(t, j["memory_gb"], j["activation_bytes"]) for t, j in zip(totals, jobs, strict=True)]
    assert {*fits} == {0, 1, 2, 3, None}


def test_the_new_shards_hold_each_element_once():
    _, given = a_case(reshard, 1)
    jobs = [job for job in given[0]["jobs"] if (job["ranks"], job["num_ranks"]) == (2, 4)]
    jobs.sort(key=lambda job: job["rank"])
    for name, unit in jobs[0]["units"].items():
        (bucket,) = plan_flat([unit["size"]], 4).buckets
        for key in ("values", "exp_avg", "exp_avg_sq"):
            shards = [reshard.right({**job, "units": jobs[0]["units"]})[name][key] for job in jobs]
            assert {len(shard) for shard in shards} == {bucket.shard}
            assert torch.equal(torch.cat(shards)[: unit["size"]], unit["whole"][key][: unit["size"]])
            assert not torch.cat(shards)[unit["size"] :].any()


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_bug_hunt_expects_what_one_process_does_with_all_data(ranks):
    case, given = a_case(bug_hunt, ranks)
    trainings = {name: one for name, one in given[0]["trainings"].items() if not one["noises"]}
    assert len(trainings) == len(given[0]["trainings"]) - 1  # of the last one, with noise, no values are compared
    for name, one in trainings.items():
        model = torch.nn.Linear(len(one["start"]) - 1, 1)
        model.load_state_dict({"weight": one["start"][None, :-1], "bias": one["start"][-1:]})
        optimizer = torch.optim.SGD(model.parameters(), lr=one["lr"], momentum=0.9)
        for step in range(len(one["batches"])):
            pairs = [i["trainings"][name]["batches"][step] for i in given]
            x, y = (torch.cat([pair[k] for pair in pairs]) for k in range(2))
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), one["max_norm"])
            optimizer.step()
        want = bug_hunt.expected(case, given)[0][name]
        state = [optimizer.state[p]["momentum_buffer"].flatten() for p in model.parameters()]
        torch.testing.assert_close(torch.cat([p.detach().flatten() for p in model.parameters()]), want["parameters"])
        torch.testing.assert_close(torch.cat(state), want["state"], rtol=1e-4, atol=1e-5)
