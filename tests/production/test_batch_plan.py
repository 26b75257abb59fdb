import pytest

from dtlearn.production.batch_plan import BatchPlan, plan_batch


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
