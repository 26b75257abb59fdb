import pytest
import torch

from dtlearn.production.checkpoints.elastic import BatchPlan, merge_residuals, plan_batch, ranks_to_merge


@pytest.mark.parametrize(
    ("ranks", "plan"),
    [
        (4, BatchPlan(24, 4, 2, 3, 0.1)),
        (2, BatchPlan(24, 2, 3, 4, 0.1)),
        (1, BatchPlan(24, 1, 6, 4, 0.1)),
        (5, BatchPlan(20, 5, 1, 4, 0.1 * 20 / 24)),
        (24, BatchPlan(24, 24, 1, 1, 0.1)),
    ],
)
def test_the_table_of_the_docstring(ranks, plan):
    found = plan_batch(24, ranks, max_micro_batch=4, lr=0.1)
    assert found[:4] == plan[:4] and found.lr == pytest.approx(plan.lr, rel=1e-15)


@pytest.mark.parametrize("batch", [1, 7, 24, 96])
def test_the_batch_is_kept_whenever_the_ranks_divide_it(batch):
    for ranks in range(1, batch + 1):
        plan = plan_batch(batch, ranks, max_micro_batch=5, lr=1.0)
        assert plan.global_batch == plan.num_ranks * plan.accumulate * plan.micro_batch <= batch
        assert plan.micro_batch <= 5 and batch - plan.global_batch < ranks
        assert (plan.global_batch == batch) == (batch % ranks == 0)
        assert plan.lr == pytest.approx(plan.global_batch / batch)


@pytest.mark.parametrize(("batch", "ranks", "most"), [(4, 5, 1), (0, 1, 1), (4, 0, 1), (4, 1, 0)])
def test_what_cannot_be_shared_is_refused(batch, ranks, most):
    with pytest.raises(ValueError, match="each rank needs at least one sample"):
        plan_batch(batch, ranks, max_micro_batch=most, lr=0.1)


@pytest.mark.parametrize(("saved", "now"), [(4, 2), (4, 3), (2, 4), (4, 1), (3, 3)])
def test_what_is_owed_stays_owed(saved, now):
    """The mean of what is sent, over all ranks, must in the end be the mean of the gradients."""
    kept = torch.randn(saved, 50, dtype=torch.float64)
    rows = [ranks_to_merge(saved, now, rank) for rank in range(now)]
    assert sorted(row for own in rows for row in own) == list(range(saved))
    new = [merge_residuals([kept[row] for row in own], saved, now) for own in rows if own]
    assert torch.allclose(sum(new) / now, kept.mean(dim=0), atol=1e-15)
    if saved == now:
        assert all(torch.equal(a, b) for a, b in zip(new, kept, strict=True))
