"""A stage is its module, in all ways of going back; what it keeps is what it says."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dtlearn.memory.ledger.storage_ledger import StorageLedger
from dtlearn.pipeline_parallel.runner.recomputation import RecomputingStage
from dtlearn.pipeline_parallel.runner.stage import ForwardOnlyStage, PipelineStage

WIDTH, ROWS = 16, 8


def module(p=0.0):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Dropout(p), nn.Linear(WIDTH, WIDTH)).double()


def example(seed=1):
    return torch.randn(ROWS, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def go_back(stage, microbatch, gradient, is_split):
    if not is_split:
        return stage.backward(microbatch, gradient)
    input_gradient = stage.backward_inputs(microbatch, gradient)
    stage.backward_weights(microbatch)
    return input_gradient


@pytest.mark.parametrize("kind", [PipelineStage, RecomputingStage])
@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("p", [0.0, 0.5])
def test_a_stage_is_its_module(kind, is_split, p):
    """Two micro-batches, the second one back first, and the random numbers of dropout drawn once."""
    plain, stage = module(p), kind(module(p), splits_backward=is_split)
    torch.manual_seed(3)
    inputs = [example(seed).requires_grad_() for seed in (1, 2)]
    for x, made in zip(inputs, [plain(x) for x in inputs], strict=True):
        made.backward(x.detach() + 1)
    torch.manual_seed(3)
    outputs = [stage.forward(number, example(number + 1)) for number in range(2)]
    assert not any(output.requires_grad for output in outputs) and len(stage.live) == 2
    following = torch.get_rng_state()
    for number in (1, 0):
        back = go_back(stage, number, inputs[number].detach() + 1, is_split)
        assert torch.allclose(back, inputs[number].grad, rtol=0, atol=1e-12)
    assert not stage.live and torch.equal(torch.get_rng_state(), following)
    for mine, theirs in zip(stage.module.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [PipelineStage, RecomputingStage])
def test_the_last_stage_gives_the_loss_and_the_first_no_gradient(kind):
    stage = kind(module(), loss_fn=F.cross_entropy, is_first=True)
    x, targets = example(), torch.arange(ROWS)
    loss = stage.forward(0, x, targets)
    assert loss.shape == () and torch.equal(loss, F.cross_entropy(module()(x), targets).detach())
    evaluated = ForwardOnlyStage(stage)
    assert torch.equal(evaluated.forward(1, x, targets), loss) and evaluated.forward(1, x).shape == (ROWS, WIDTH)
    assert list(stage.live) == [0]
    assert stage.backward(0, torch.full_like(loss, 0.5)) is None
    plain = module()
    (0.5 * F.cross_entropy(plain(x), targets)).backward()
    assert torch.allclose(stage.module[0].weight.grad, plain[0].weight.grad, rtol=0, atol=1e-12)


def test_whole_numbers_and_frozen_parameters_in_the_first_stage():
    embedding = PipelineStage(nn.Embedding(5, 3), is_first=True)
    assert embedding.forward(0, torch.tensor([1, 2])).shape == (2, 3)
    assert embedding.backward(0, torch.ones(2, 3)) is None
    frozen = PipelineStage(module().requires_grad_(False), is_first=True)
    frozen.forward(0, example())
    assert frozen.backward(0, example()) is None


def test_a_module_that_ignores_its_inputs_gives_zeros():
    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.value = nn.Parameter(torch.ones(2))

        def forward(self, x):
            return self.value * 2

    stage = PipelineStage(Constant())
    stage.forward(0, torch.ones(3))
    assert stage.backward(0, torch.ones(2)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("made", [torch.tensor([1]), (torch.ones(1),), None])
def test_other_outputs_are_refused(made):
    class Other(nn.Module):
        def forward(self, x):
            return made

    with pytest.raises(TypeError, match="returns one tensor of floating-point numbers; this one returned"):
        PipelineStage(Other()).forward(0, torch.ones(1))


KEPT = ROWS * WIDTH * 8  # bytes of one tensor
# After F and the end of its outputs, and after I: in tensors of KEPT bytes.
CASES = {
    "as it is": (PipelineStage, 3),  # the inputs, what tanh made, what dropout made of it
    "recompute": (RecomputingStage, 1),  # and 5 kB of random states, which the ledger does not see
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_kept_of_a_micro_batch(case):
    kind, tensors = CASES[case]
    stage = kind(module(0.5))
    mask = 0 if kind is RecomputingStage else ROWS * WIDTH * 8
    with StorageLedger() as ledger:
        for live in (1, 2, 3):
            stage.forward(live, example(live).clone())  # the outputs are let go: they were sent
            assert ledger.now == live * (tensors * KEPT + mask), ledger.now / KEPT
        gradient = example()
        before = ledger.now
        for live in (1, 2, 3):
            stage.backward(live, gradient)
        parameters = sum(p.nbytes for p in stage.module.parameters())
        assert ledger.now == before - 3 * (tensors * KEPT + mask) + parameters


def test_after_the_gradient_of_the_inputs_the_linear_layers_keep_two_tensors_each():
    stage = PipelineStage(module(), splits_backward=True)
    with StorageLedger() as ledger:
        stage.forward(0, example().clone())
        stage.backward_inputs(0, example())
        assert ledger.now == 4 * KEPT
        stage.backward_weights(0)
        assert ledger.now == sum(p.nbytes for p in stage.module.parameters())


@pytest.mark.parametrize("is_first", [True, False])
def test_a_first_layer_that_works_in_place_is_named(is_first):
    """In a later stage autograd refuses it in F, in the first one in B: its parts of the batch are one tensor."""
    stage = PipelineStage(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 3)), is_first=is_first)

    def both():
        for number, x in enumerate(torch.ones(4, 3).tensor_split(2)):
            stage.forward(number, x)
        stage.backward(0, torch.ones(2, 3))

    with pytest.raises(RuntimeError, match=r"in-?place") as error:
        both()
    assert "The first layer of a stage must not work in place, as ReLU(inplace=True) does" in error.value.__notes__[0]
