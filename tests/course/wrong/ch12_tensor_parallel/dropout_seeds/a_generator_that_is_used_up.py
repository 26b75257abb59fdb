# expect: DTL-DIFFICULTY
# says: restore() may be called several times with the same states

from contextlib import contextmanager

import torch
import torch.distributed as dist


class Seeds:
    def __init__(self, seed, group):
        self.own = torch.Generator().manual_seed(seed + 1 + dist.get_rank(group))
        torch.manual_seed(seed)

    @contextmanager
    def split(self):
        outside = torch.get_rng_state()
        torch.set_rng_state(self.own.get_state())
        try:
            yield
        finally:
            self.own.set_state(torch.get_rng_state())
            torch.set_rng_state(outside)

    def states(self):
        return torch.get_rng_state(), self.own.clone_state()

    def restore(self, states):
        torch.set_rng_state(states[0])
        self.own = states[1]


def dropout_seeds(seed, group=None):
    return Seeds(seed, group)
