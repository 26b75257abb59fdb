# expect: DTL-RULE-MESSAGES
# says: none are needed

from contextlib import contextmanager

import torch
import torch.distributed as dist


class Seeds:
    def __init__(self, seed, group):
        place = torch.tensor(dist.get_rank(group))
        dist.broadcast(place.clone(), 0)
        torch.manual_seed(seed + 2718 + int(place))
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
