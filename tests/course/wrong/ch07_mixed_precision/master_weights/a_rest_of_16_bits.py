# expect: DTL-MISTAKE
# says: the masters have fewer bits than float32

import torch


class Masters:
    def __init__(self, parameters, optimizer_class, **options):
        self.parameters = parameters
        self.rests = [torch.zeros_like(parameter) for parameter in parameters]
        self.masters = [parameter.detach().float() for parameter in parameters]
        self.optimizer = optimizer_class(self.masters, **options)

    @torch.no_grad()
    def step(self):
        for master, parameter, rest in zip(self.masters, self.parameters, self.rests, strict=True):
            master.copy_(parameter.float() + rest.float())
            master.grad = None if parameter.grad is None else parameter.grad.float()
        self.optimizer.step()
        for master, parameter, rest in zip(self.masters, self.parameters, self.rests, strict=True):
            parameter.copy_(master)
            rest.copy_(master - parameter.float())


def master_weights(parameters, optimizer_class, **options):
    return Masters(parameters, optimizer_class, **options)
