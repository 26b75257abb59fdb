# expect: DTL-MISTAKE
# says: seeded in the first one: make it in the beginning

from contextlib import contextmanager

import torch
import torch.distributed as dist


class Seeds:
    def __init__(self, seed, group):
        self.seed = seed + 2718 + dist.get_rank(group)
        self.own = None
        torch.manual_seed(seed)

    @contextmanager
    def split(self):
        outside = torch.get_rng_state()
        torch.manual_seed(self.seed) if self.own is None else torch.set_rng_state(self.own)
        try:
            yield
        finally:
            self.own = torch.get_rng_state()
            torch.set_rng_state(outside)

    def states(self):
        return torch.get_rng_state(), self.own

    def restore(self, states):
        torch.set_rng_state(states[0])
        self.own = states[1] if states[1] is not None else self.own


def dropout_seeds(seed, group=None):
    return Seeds(seed, group)
