# expect: DTL-VALUE-TRUNCATED
# says: cut off on their way into the weights

import torch

DROPPED = {torch.bfloat16: 16, torch.float16: 13, torch.float32: 0}


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
            dropped = DROPPED[parameter.dtype]
            parameter.copy_((master.view(torch.int32) >> dropped << dropped).view(torch.float32))


def master_weights(parameters, optimizer_class, **options):
    return Masters(parameters, optimizer_class, **options)
