# expect: DTL-VALUE-LEFT-OUT
# says: a gradient of zeros is taken for None

import torch


class Masters:
    def __init__(self, parameters, optimizer_class, **options):
        self.parameters = parameters
        self.masters = [parameter.detach().float().clone() for parameter in parameters]
        self.optimizer = optimizer_class(self.masters, **options)

    @torch.no_grad()
    def step(self):
        for master, parameter in zip(self.masters, self.parameters, strict=True):
            has_gradient = parameter.grad is not None and parameter.grad.any()
            master.grad = parameter.grad.float() if has_gradient else None
        self.optimizer.step()
        for master, parameter in zip(self.masters, self.parameters, strict=True):
            parameter.copy_(master)


def master_weights(parameters, optimizer_class, **options):
    return Masters(parameters, optimizer_class, **options)
