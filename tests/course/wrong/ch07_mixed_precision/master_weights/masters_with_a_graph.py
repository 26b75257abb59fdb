# expect: DTL-RAISED
# says: can't optimize a non-leaf Tensor

import torch


class Masters:
    """The masters are results of operations on the parameters: `float()` is recorded."""

    def __init__(self, parameters, optimizer_class, **options):
        self.parameters = parameters
        self.masters = [parameter.float() for parameter in parameters]
        self.optimizer = optimizer_class(self.masters, **options)

    def step(self):
        for master, parameter in zip(self.masters, self.parameters, strict=True):
            master.grad = None if parameter.grad is None else parameter.grad.float()
        self.optimizer.step()
        with torch.no_grad():
            for master, parameter in zip(self.masters, self.parameters, strict=True):
                parameter.copy_(master)


def master_weights(parameters, optimizer_class, **options):
    return Masters(parameters, optimizer_class, **options)
