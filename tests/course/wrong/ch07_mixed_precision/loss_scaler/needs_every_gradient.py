# expect: DTL-RAISED
# says: a parameter whose .grad is None is left out


class Scaler:
    def __init__(self, init_scale, growth_factor, backoff_factor, growth_interval):
        self.g, self.b, self.n = growth_factor, backoff_factor, growth_interval
        self.s, self.count, self.finite = init_scale, 0, None

    def scale(self, loss):
        return loss.float() * self.s

    def unscale_(self, optimizer):
        gradients = [p.grad.div_(self.s) for group in optimizer.param_groups for p in group["params"]]
        self.finite = all(bool(gradient.isfinite().all()) for gradient in gradients)

    def step(self, optimizer):
        if self.finite is None:
            self.unscale_(optimizer)
        if self.finite:
            optimizer.step()

    def update(self):
        self.count = self.count + 1 if self.finite else 0
        if not self.finite or self.count == self.n:
            self.s, self.count = self.s * (self.g if self.finite else self.b), 0
        self.finite = None

    def get_scale(self):
        return self.s


def loss_scaler(init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
    return Scaler(init_scale, growth_factor, backoff_factor, growth_interval)
