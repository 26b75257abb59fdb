# expect: DTL-VALUE-LEFT-OUT
# says: the float32 weight never changes

import torch


class Masters:
    def __init__(self, parameters, optimizer_class, **options):
        self.parameters = [p for p in parameters if p.dtype != torch.float32]
        self.masters = [parameter.detach().float().clone() for parameter in self.parameters]
        self.optimizer = optimizer_class(self.masters, **options)

    @torch.no_grad()
    def step(self):
        for master, parameter in zip(self.masters, self.parameters, strict=True):
            master.grad = None if parameter.grad is None else parameter.grad.float()
        self.optimizer.step()
        for master, parameter in zip(self.masters, self.parameters, strict=True):
            parameter.copy_(master)


def master_weights(parameters, optimizer_class, **options):
    return Masters(parameters, optimizer_class, **options)
