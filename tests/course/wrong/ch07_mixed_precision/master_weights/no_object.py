# expect: DTL-RAISED
# says: 'NoneType' object has no attribute 'step'

import torch


class Masters:
    def __init__(self, parameters, optimizer_class, **options):
        self.parameters = parameters
        self.masters = [parameter.detach().float().clone() for parameter in parameters]
        self.optimizer = optimizer_class(self.masters, **options)

    @torch.no_grad()
    def step(self):
        for master, parameter in zip(self.masters, self.parameters, strict=True):
            master.grad = None if parameter.grad is None else parameter.grad.float()
        self.optimizer.step()
        for master, parameter in zip(self.masters, self.parameters, strict=True):
            parameter.copy_(master)


def master_weights(parameters, optimizer_class, **options):
    Masters(parameters, optimizer_class, **options)
