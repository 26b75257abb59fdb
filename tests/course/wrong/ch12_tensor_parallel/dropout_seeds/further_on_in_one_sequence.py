# expect: DTL-MISTAKE
# says: one sequence from two places on

from contextlib import contextmanager

import torch
import torch.distributed as dist


class Seeds:
    def __init__(self, seed, group):
        torch.manual_seed(seed + 2718)
        torch.rand(1000 * dist.get_rank(group))
        self.own = torch.get_rng_state()
        torch.manual_seed(seed)

    @contextmanager
    def split(self):
        outside = torch.get_rng_state()
        torch.set_rng_state(self.own)
        try:
            yield
        finally:
            self.own = torch.get_rng_state()
            torch.set_rng_state(outside)

    def states(self):
        return torch.get_rng_state(), self.own

    def restore(self, states):
        torch.set_rng_state(states[0])
        self.own = states[1]


def dropout_seeds(seed, group=None):
    return Seeds(seed, group)
