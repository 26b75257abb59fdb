import torch
from torch.autograd.graph import saved_tensors_hooks


class Segment:
    """Autograd keeps numbers in place of what the function saves; the first that is asked for runs it again."""

    def __init__(self, function, inputs):
        self.function, self.inputs, self.count, self.found = function, inputs, 0, {}
        self.state = torch.get_rng_state()

    def pack(self, tensor):
        self.count += 1
        return self.count - 1

    def unpack(self, number):
        if not self.found:
            self.run_again()
        return self.found.pop(number)

    def run_again(self):
        now = torch.get_rng_state()
        torch.set_rng_state(self.state)
        again = []
        with torch.enable_grad(), saved_tensors_hooks(lambda t: again.append(t.detach()), lambda _: None):
            self.function(
                *(x.detach().requires_grad_(x.requires_grad) if torch.is_tensor(x) else x for x in self.inputs)
            )
        torch.set_rng_state(now)
        self.found = dict(enumerate(again))


def checkpoint(function, *inputs):
    if not torch.is_grad_enabled():
        return function(*inputs)
    segment = Segment(function, inputs)
    with saved_tensors_hooks(segment.pack, segment.unpack):
        return function(*inputs)
