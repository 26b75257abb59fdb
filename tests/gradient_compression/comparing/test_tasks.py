import pytest
import torch

from dtlearn.gradient_compression.comparing.tasks import TASKS


@pytest.mark.parametrize("name", list(TASKS))
def test_a_task_fits_together(name):
    task = TASKS[name]()
    assert task.name == name
    model = task.model()
    inputs, targets = next(task.batches(1))
    before = task.loss(model(inputs), targets)
    optimizer = task.optimizer(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        task.loss(model(inputs), targets).backward()
        optimizer.step()
    assert task.loss(model(inputs), targets) < before
    inputs, targets = task.held_out()
    assert task.loss(model(inputs), targets).isfinite()


@pytest.mark.parametrize("name", list(TASKS))
def test_batches_are_the_same_everywhere(name):
    first, second = ([inputs for inputs, _ in TASKS[name]().batches(2)] for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0], first[1])
    assert len(first[0]) % 4 == 0


def test_parameters_are_as_many_as_the_docstring_says():
    for name, count in (("GPT", "21,984"), ("digits", "26,122")):
        model = TASKS[name]().model()
        assert f"{sum(p.numel() for p in model.parameters()):,}" == count
        assert f"{count} parameters" in (TASKS[name].__doc__ or "")
