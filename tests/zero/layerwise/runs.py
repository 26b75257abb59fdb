"""What the tests of layer-wise optimizers share: the MLP of `tests/data_parallel`, trained by several optimizers."""

from dtlearn.models import snapshot_parameters
from tests.data_parallel.runs import data, loss_of
from tests.zero.stages.runs import train, wrapped


class Both:
    """Two optimizers of disjoint parameters, stepped together."""

    def __init__(self, *optimizers):
        self.optimizers = optimizers

    def zero_grad(self):
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()


def matrices(model):
    return [parameter for parameter in model.parameters() if parameter.dim() == 2]


def vectors(model):
    return [parameter for parameter in model.parameters() if parameter.dim() != 2]


def parameters_after_steps(make_optimizer, averages):
    """After each of 3 steps on the ranks, under DDP if `averages`."""
    model = wrapped("mlp", averages)
    return train(model, make_optimizer(model.module), data("mlp", 3, 12), loss_of("mlp"))


def in_one_process(make_optimizer):
    """The same on one rank alone, each step with the whole batch."""
    model = wrapped("mlp", averages=False).module
    optimizer, steps = make_optimizer(model), []
    for inputs, targets in data("mlp", 3, 12):
        optimizer.zero_grad()
        loss_of("mlp")(model(inputs), targets).backward()
        optimizer.step()
        steps.append(snapshot_parameters(model))
    return steps
