# expect: DTL-DIFFICULTY
# says: a step with a gradient that is infinite, of either sign, or NaN is skipped

import math


class Scaler:
    """Skips a step if the loss is infinite or NaN; a gradient can be, where no loss is."""

    def __init__(self, init_scale, growth_factor, backoff_factor, growth_interval):
        self.g, self.b, self.n = growth_factor, backoff_factor, growth_interval
        self.s, self.count, self.finite, self.done = init_scale, 0, True, False

    def scale(self, loss):
        scaled = loss.float() * self.s
        self.finite = math.isfinite(scaled.item())
        return scaled

    def unscale_(self, optimizer):
        self.done = True
        for p in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
            p.grad /= self.s

    def step(self, optimizer):
        if not self.done:
            self.unscale_(optimizer)
        if self.finite:
            optimizer.step()

    def update(self):
        self.count = self.count + 1 if self.finite else 0
        if not self.finite or self.count == self.n:
            self.s, self.count = self.s * (self.g if self.finite else self.b), 0
        self.done = False

    def get_scale(self):
        return self.s


def loss_scaler(init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
    return Scaler(init_scale, growth_factor, backoff_factor, growth_interval)
