# expect: DTL-VALUE-FIRST-GROUP
# says: only the first parameter group


class Scaler:
    def __init__(self, init_scale, growth_factor, backoff_factor, growth_interval):
        self.g, self.b, self.n = growth_factor, backoff_factor, growth_interval
        self.s, self.count, self.done, self.bad = init_scale, 0, False, False

    def scale(self, loss):
        return loss.float() * self.s

    def unscale_(self, optimizer):
        for p in optimizer.param_groups[0]["params"]:
            if p.grad is not None:
                p.grad /= self.s
                self.bad |= not p.grad.isfinite().all()
        self.done = True

    def step(self, optimizer):
        if not self.done:
            self.unscale_(optimizer)
        if not self.bad:
            optimizer.step()

    def update(self):
        if self.bad:
            self.s *= self.b
            self.count = 0
        else:
            self.count += 1
            if self.count == self.n:
                self.s *= self.g
                self.count = 0
        self.done = self.bad = False

    def get_scale(self):
        return self.s


def loss_scaler(init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
    return Scaler(init_scale, growth_factor, backoff_factor, growth_interval)
