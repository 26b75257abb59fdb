import torch
import torch.distributed as dist


class Region:
    def __init__(self, seeds):
        self.seeds = seeds

    def __enter__(self):
        self.seeds.swap()

    def __exit__(self, *_):
        self.seeds.swap()


class Seeds:
    def __init__(self, seed, group):
        self.other = torch.Generator().manual_seed(1_000_003 * (seed + 1) + 17 * dist.get_rank(group)).get_state()
        torch.manual_seed(seed)

    def swap(self):
        here = torch.get_rng_state()
        torch.set_rng_state(self.other)
        self.other = here

    def split(self):
        return Region(self)

    def states(self):
        return {"here": torch.get_rng_state().clone(), "other": self.other.clone()}

    def restore(self, states):
        torch.set_rng_state(states["here"])
        self.other = states["other"].clone()


def dropout_seeds(seed, group=None):
    return Seeds(seed, group)
