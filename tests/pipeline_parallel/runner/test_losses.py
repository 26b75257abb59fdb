"""Several losses by name: their sum is what is trained, and each is reported once."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from dtlearn.models import next_token_loss
from dtlearn.pipeline_parallel import make_schedule
from dtlearn.pipeline_parallel.runner.losses import num_terms_of, shares_of, stack_terms, sum_of_terms
from dtlearn.pipeline_parallel.runner.runner import PipelineRunner
from dtlearn.runtime.run import run_ranks
from tests.pipeline_parallel.runs import MODELS, TOLERANCE, batches, distance, snapshot, stages_of

M, ROWS = 4, 7  # micro-batches of 2, 2, 2 and 1 rows
CASES = [("1f1b", False), ("1f1b", True), ("zb_h1", False), ("zb_h1", True), ("zbv", {3})]


def terms_of(outputs, targets):
    z_loss = 0.1 * outputs.logsumexp(-1).square().mean()
    return {"cross_entropy": F.cross_entropy(outputs, targets), "z_loss": z_loss}


def total(outputs, targets):
    return sum(terms_of(outputs, targets).values())


def whole():
    """The results of one process: the loss, gradients and parameters, and the terms of each micro-batch."""
    torch.manual_seed(0)
    model = MODELS["sequential"]()
    ((inputs, targets),) = batches("sequential", ROWS, 1)
    loss = total(model(inputs), targets)
    loss.backward()
    parts = zip(inputs.tensor_split(M), targets.tensor_split(M), strict=True)
    of_parts = [terms_of(model(x).detach(), y) for x, y in parts]
    return loss.item(), snapshot([model]), {name: torch.stack([t[name] for t in of_parts]) for name in of_parts[0]}


def on_a_rank():
    """The results of each case: how far gradients are from one process, and what step and evaluation return."""
    found, (_, tensors, _) = [], whole()
    ((inputs, targets),) = batches("sequential", ROWS, 1)
    for kind, recompute in CASES:
        schedule = make_schedule(kind, 2, M)
        stages, _ = stages_of("sequential", schedule.num_stages)
        runner = PipelineRunner(schedule, stages, terms_of, recompute=recompute)
        result = runner.step(inputs, targets)
        away = distance(snapshot(runner.modules.values()), tensors)
        found.append((away, result, runner.evaluate(inputs, targets), schedule.placement[-1]))
    return found


@pytest.fixture(scope="module")
def on_two():
    return run_ranks(on_a_rank, 2, device="cpu").values


def test_the_sum_is_trained_and_each_term_reported_once(on_two):
    loss, _, terms = whole()
    for rank, found in enumerate(on_two):
        for away, result, evaluated, last_rank in found:
            assert away < TOLERANCE
            if rank != last_rank:
                assert (result.losses, result.loss, result.terms, evaluated) == (None, None, {}, None)
                continue
            assert abs(result.loss - loss) < TOLERANCE and abs(evaluated - loss) < TOLERANCE
            assert list(result.terms) == list(terms)
            for name, of_microbatches in result.terms.items():
                assert of_microbatches.shape == (M,) and not of_microbatches.requires_grad
                assert torch.allclose(of_microbatches, terms[name], rtol=0, atol=TOLERANCE)
            assert torch.allclose(sum(result.terms.values()), result.losses, rtol=0, atol=TOLERANCE)


def test_one_loss_has_no_terms():
    loss = torch.ones((), requires_grad=True)
    found, terms = sum_of_terms(loss)
    assert found is loss and terms == {}


def test_no_term_and_other_terms_are_refused():
    with pytest.raises(ValueError, match="loss_fn returned no term"):
        sum_of_terms({})
    one = torch.ones(())
    with pytest.raises(ValueError, match=r"terms \['a'\] for micro-batch 0 and \['a', 'b'\] for 1"):
        stack_terms([{"a": one}, {"a": one, "b": one}])


def test_a_loss_that_is_no_mean_is_refused():
    with pytest.raises(ValueError, match=r"loss_fn returned a loss of \(3,\); expected the mean over the micro-batch"):
        sum_of_terms(torch.ones(3))
    with pytest.raises(ValueError, match=r"returned a z_loss of \(1,\)"):
        sum_of_terms({"a": torch.ones(()), "z_loss": torch.ones(1)})
    for loss_fn in (torch.nn.MSELoss(reduction="sum"), partial(F.cross_entropy, reduction="none")):
        with pytest.raises(
            ValueError, match=r"loss_fn has reduction='(sum|none)'; expected the mean over a micro-batch"
        ):
            num_terms_of(loss_fn)


WEIGHT = torch.tensor([1.0, 2.0, 0.5, 4.0])
TARGETS = torch.tensor([0, 1, -100, 3])


@pytest.mark.parametrize(
    ("loss_fn", "targets", "count"),
    [
        (F.cross_entropy, TARGETS, 3),
        (F.nll_loss, TARGETS, 3),
        (next_token_loss, TARGETS.view(2, 2), 3),
        (torch.nn.CrossEntropyLoss(), TARGETS, 3),
        (torch.nn.CrossEntropyLoss(ignore_index=1), TARGETS.clamp(0), 3),
        (torch.nn.NLLLoss(weight=WEIGHT), TARGETS, 7),
        (partial(F.cross_entropy, ignore_index=0), TARGETS.clamp(0), 2),
        (partial(partial(F.cross_entropy, ignore_index=0), ignore_index=3), TARGETS.clamp(0), 3),
        (F.cross_entropy, torch.ones(5, 4), 5),  # probabilities
        (torch.nn.MSELoss(), torch.ones(5, 2), 5),
        (F.mse_loss, torch.ones(5, 2), 5),
    ],
)
def test_of_torch_s_losses_the_terms_are_known(loss_fn, targets, count):
    assert num_terms_of(loss_fn)(targets) == count


def test_of_other_losses_nothing_is_known():
    assert num_terms_of(lambda outputs, targets: F.cross_entropy(outputs, targets)) is None


def test_micro_batches_count_by_their_terms():
    parts = TARGETS.tensor_split(2)
    assert shares_of(parts, num_terms_of(F.cross_entropy)) == (2 / 3, 1 / 3)
    assert shares_of(parts, len) == (1 / 2, 1 / 2)
    assert shares_of([torch.tensor([0, -100]), torch.tensor([-100, 1])], None) == (1 / 2, 1 / 2)
    assert shares_of([torch.tensor([-100.0]), torch.tensor([1.0])], None) == (1 / 2, 1 / 2)
    with pytest.raises(ValueError, match=r"targets are -100 in 0%, 50% of the places.*give num_terms=lambda targets"):
        shares_of(parts, None)
    with pytest.raises(
        ValueError, match=r"micro-batch 1 has no terms: its mean loss is 0 / 0\. Use fewer micro-batches"
    ):
        shares_of([TARGETS[:2], TARGETS[2:3]], num_terms_of(F.cross_entropy))
