"""Which backward passes are told of, with what in between: one process is enough for that."""

import gc

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dtlearn.sharing.wrapping.backward_hooks import BackwardPass


class Diary:
    """Writes down what it is told, as a wrapper would act on it."""

    def __init__(self):
        self.lines = []

    def backward_begins(self, unused):
        self.lines.append(f"begins {list(unused)}")

    def gradient_is_ready(self, number):
        self.lines.append(number)

    def backward_ends(self):
        self.lines.append("ends")

    def passes(self):
        """What was written since the last question: for each pass the numbers of its gradients, sorted."""
        lines, self.lines = self.lines, []
        found = []
        for line in lines:
            if line == "begins []":
                found.append([])
            elif line == "ends":
                found[-1] = sorted(found[-1])
            else:
                found[-1].append(line)
        assert lines.count("begins []") == lines.count("ends") and (not lines or lines[-1] == "ends"), lines
        return found


def watch(model, diary):
    return BackwardPass(
        list(model.parameters()), begins=diary.backward_begins, ready=diary.gradient_is_ready, ends=diary.backward_ends
    )


@pytest.fixture
def diary():
    return Diary()


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


@pytest.fixture
def watched(model, diary):
    return watch(model, diary)


X = torch.ones(5, 3)


def test_a_pass_begins_with_its_first_gradient_and_ends_after_its_last(model, watched, diary):
    outputs = model(X)
    watched.follow(outputs, True)
    assert diary.lines == []
    outputs.sum().backward()
    assert diary.lines[0] == "begins []" and diary.lines[-1] == "ends"
    assert diary.lines.index(3) < diary.lines.index(0)  # the last layer's gradients come first
    assert diary.passes() == [[0, 1, 2, 3]]


def test_the_end_alone_can_be_asked_for(model, diary):
    watched = BackwardPass(list(model.parameters()), ends=diary.backward_ends)
    outputs = model(X)
    watched.follow(outputs, True)
    outputs.sum().backward()
    assert diary.lines == ["ends"]


def test_the_owner_is_told_what_the_forward_pass_said_of_unused_parameters(model, watched, diary):
    outputs = model(X)
    watched.follow(outputs, True, unused=[7])
    outputs.sum().backward()
    assert diary.lines[0] == "begins [7]"


def test_of_a_pass_that_is_not_wanted_nothing_is_told(model, watched, diary):
    outputs = model(X)
    watched.follow(outputs, False)
    outputs.sum().backward()
    assert diary.passes() == []
    outputs = model(X)
    watched.follow(outputs, True)
    outputs.sum().backward()
    assert diary.passes() == [[0, 1, 2, 3]]


def test_a_pass_of_the_bare_module_is_not_told_of(model, watched, diary):
    outputs = model(X)
    watched.follow(outputs, True)
    outputs.sum().backward()
    assert diary.passes() == [[0, 1, 2, 3]]
    model(X).sum().backward()
    assert diary.passes() == []


def test_each_forward_pass_decides_for_its_own_backward_pass(model, watched, diary):
    """Forward, forward, backward, backward: the second forward pass does not change what the first has said."""
    first = model(X)
    watched.follow(first, True)
    second = model(X)
    watched.follow(second, True)
    first.sum().backward()
    assert diary.passes() == [[0, 1, 2, 3]]
    second.sum().backward()
    assert diary.passes() == [[0, 1, 2, 3]]


def test_a_second_pass_over_a_retained_graph_is_told_of(model, watched, diary):
    outputs = model(X)
    watched.follow(outputs, True)
    outputs.sum().backward(retain_graph=True)
    outputs.sum().backward()
    assert diary.passes() == [[0, 1, 2, 3]] * 2


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_backward_pass_inside_the_backward_pass_does_not_end_it(model, watched, diary, use_reentrant):
    """With `use_reentrant=True` a checkpoint runs one of its own, and its end comes first."""
    inputs = X.clone().requires_grad_()
    hidden = checkpoint(model[0], inputs, use_reentrant=use_reentrant)
    outputs = model[2](checkpoint(model[1], hidden, use_reentrant=use_reentrant))
    watched.follow(outputs, True)
    outputs.sum().backward()
    assert diary.passes() == [[0, 1, 2, 3]]


def test_gradients_of_inputs_alone_are_no_pass(model, watched, diary):
    inputs = X.clone().requires_grad_()
    outputs = model(inputs)
    watched.follow(outputs, True)
    (gradient,) = torch.autograd.grad(outputs.sum(), inputs, retain_graph=True)
    assert gradient.shape == inputs.shape and diary.passes() == []
    outputs.sum().backward()
    assert diary.passes() == [[0, 1, 2, 3]]


def test_after_an_error_in_a_pass_the_next_one_is_told_of_as_a_whole(model, watched, diary):
    class Breaks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("in the middle")

    outputs = model[2](Breaks.apply(model[0](X)))
    watched.follow(outputs, True)
    with pytest.raises(ValueError, match="in the middle"):
        outputs.sum().backward()
    assert diary.lines[0] == "begins []" and "ends" not in diary.lines
    diary.lines.clear()
    outputs = model(X)
    watched.follow(outputs, True)
    outputs.sum().backward()
    assert diary.passes() == [[0, 1, 2, 3]]


class Wrapped:
    """An output of a kind that nobody looks into."""

    def __init__(self, tensor):
        self.tensor = tensor


@pytest.mark.parametrize("pack", [lambda t: t, lambda t: [t], lambda t: {"a": (t,)}, Wrapped])
def test_outputs_of_any_kind_are_followed(model, watched, diary, pack):
    outputs = model(X)
    watched.follow(pack(outputs), True)
    outputs.sum().backward()
    assert diary.passes() == [[0, 1, 2, 3]]


def test_the_hooks_go_with_the_object_and_the_owner_is_not_kept_alive(model):
    diary = Diary()
    watched = watch(model, diary)
    outputs = model(X)
    watched.follow(outputs, True)
    lines = diary.lines
    del diary
    gc.collect()
    outputs.sum().backward()  # nobody to tell: no error
    assert lines == []
    del watched, outputs  # whose graph knows of it
    gc.collect()
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())
