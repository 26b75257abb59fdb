# expect: DTL-MISTAKE
# says: plain SGD, whatever optimizer_class and the options are

import torch


class Masters:
    """Moves the masters by itself, as SGD does."""

    def __init__(self, parameters, rate):
        self.rate = rate
        self.pairs = [(parameter, parameter.detach().to(torch.float32, copy=True)) for parameter in parameters]

    @torch.no_grad()
    def step(self):
        for parameter, master in self.pairs:
            if parameter.grad is not None:
                master -= self.rate * parameter.grad.float()
                parameter.copy_(master)


def master_weights(parameters, optimizer_class, **options):
    return Masters(parameters, options["lr"])
