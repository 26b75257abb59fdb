"""Ranks that decide by themselves drift apart; ranks that agree are the single-process run."""

import torch

from dtlearn.mixed_precision.loss_scaling.drift import FEATURES, SAMPLES, differences, train_on_rank
from dtlearn.runtime.run import run_ranks

STEPS = 6


def test_without_agreement_ranks_drift_apart():
    result = run_ranks(train_on_rank, 2, False, STEPS, device="cpu")
    assert [(steps[0].was_skipped, steps[-1].scale) for steps in result] == [(False, 8.0), (True, 4.0)]
    apart = differences(list(result))
    assert len(apart) == STEPS and apart[0] > 0.9 and apart[-1] > apart[0]  # they do not find together again


def test_with_agreement_they_are_the_reference():
    (reference,) = run_ranks(train_on_rank, 1, True, STEPS, device="cpu")
    assert [step.was_skipped for step in reference] == [True] + [False] * (STEPS - 1)
    result = run_ranks(train_on_rank, 2, True, STEPS, device="cpu", record=True)
    assert differences(list(result)) == [0.0] * STEPS
    for number, step in enumerate(reference):
        ranks = [steps[number] for steps in result]
        assert {(each.scale, each.was_skipped) for each in ranks} == {(step.scale, step.was_skipped)}
        assert torch.allclose(torch.cat([each.shard for each in ranks]), step.shard, rtol=1e-3)  # sums in another order
        assert torch.allclose(ranks[0].replicated, step.replicated, rtol=1e-3)
    assert abs(result[0][-1].loss - reference[-1].loss) < 1e-3 * reference[-1].loss
    sent = [call.nbytes for call in result.record.select(rank=0, op="all_reduce")]
    assert sent == [4 * SAMPLES, 4 * FEATURES, 4] * STEPS


def test_it_learns():
    (steps,) = run_ranks(train_on_rank, 1, True, 60, device="cpu")
    assert steps[-1].loss < 0.2 * steps[1].loss
