# expect: DTL-VALUE-OLD
# says: a gradient that is None leaves the one of an earlier step

import torch


class Masters:
    def __init__(self, parameters, optimizer_class, **options):
        self.parameters = parameters
        self.masters = [parameter.detach().float().clone() for parameter in parameters]
        self.optimizer = optimizer_class(self.masters, **options)

    @torch.no_grad()
    def step(self):
        for master, parameter in zip(self.masters, self.parameters, strict=True):
            if parameter.grad is not None:
                master.grad = parameter.grad.float()
        self.optimizer.step()
        for master, parameter in zip(self.masters, self.parameters, strict=True):
            parameter.copy_(master)


def master_weights(parameters, optimizer_class, **options):
    return Masters(parameters, optimizer_class, **options)
