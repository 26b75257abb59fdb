# expect: DTL-DIFFICULTY
# says: one object is right alone, and wrong beside a second one

import torch

MASTERS = []


class Masters:
    def __init__(self, parameters, optimizer_class, **options):
        self.parameters = parameters
        MASTERS[:] = [parameter.detach().float().clone() for parameter in parameters]
        self.optimizer = optimizer_class(MASTERS, **options)

    @torch.no_grad()
    def step(self):
        for master, parameter in zip(MASTERS, self.parameters, strict=True):
            master.grad = None if parameter.grad is None else parameter.grad.float()
        self.optimizer.step()
        for master, parameter in zip(MASTERS, self.parameters, strict=True):
            parameter.copy_(master)


def master_weights(parameters, optimizer_class, **options):
    return Masters(parameters, optimizer_class, **options)
