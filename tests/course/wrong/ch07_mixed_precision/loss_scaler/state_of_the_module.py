# expect: DTL-DIFFICULTY
# says: a scaler is right alone, and wrong beside a second one

STATE = {}


class Scaler:
    def __init__(self, init_scale, growth_factor, backoff_factor, growth_interval):
        self.growth_factor = growth_factor
        self.backoff_factor = backoff_factor
        self.growth_interval = growth_interval
        STATE["current"] = init_scale
        STATE["good_steps"] = 0
        self.unscaled = False
        self.overflow = False

    def scale(self, loss):
        return loss.float() * STATE["current"]

    def unscale_(self, optimizer):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad /= STATE["current"]
                    self.overflow |= not parameter.grad.isfinite().all()
        self.unscaled = True

    def step(self, optimizer):
        if not self.unscaled:
            self.unscale_(optimizer)
        if not self.overflow:
            optimizer.step()

    def update(self):
        if self.overflow:
            STATE["current"] *= self.backoff_factor
            STATE["good_steps"] = 0
        else:
            STATE["good_steps"] += 1
            if STATE["good_steps"] == self.growth_interval:
                STATE["current"] *= self.growth_factor
                STATE["good_steps"] = 0
        self.unscaled = self.overflow = False

    def get_scale(self):
        return STATE["current"]


def loss_scaler(init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
    return Scaler(init_scale, growth_factor, backoff_factor, growth_interval)
