"""The page: to the last bit what the real DiLoCo computes; a sabotaged one is not."""

from itertools import islice

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from dtlearn.gradient_compression import page_diloco as page
from dtlearn.gradient_compression.averaging.diloco import DiLoCo
from dtlearn.runtime.device import device as here
from tests.devices import run_ranks
from tests.gradient_compression.averaging.runs import OPTIMIZERS, batch, flat, make_model, on_rank

ROUNDS, H = 4, 3


class SignTurned(page.OuterStep):
    def step(self, model):
        with torch.no_grad():
            ends = self.shared.split([p.numel() for p in model.parameters()])
            for p, shared in zip(model.parameters(), ends, strict=True):
                p.copy_(2 * shared.view_as(p) - p)
        super().step(model)


class NobodySpeaks(page.OuterStep):
    def step(self, model):
        before, dist.all_reduce = dist.all_reduce, lambda tensor: None
        super().step(model)
        dist.all_reduce = before


def train_page(outer_step=page.OuterStep):
    model = make_model().to(here())
    inner, outer = OPTIMIZERS["adamw"](model.parameters()), outer_step(model)
    batches = (tuple(t.to(here()) for t in batch(dist.get_rank(), step)) for step in range(ROUNDS * H))
    trace = []
    for _ in range(ROUNDS):
        page.inner_steps(model, inner, F.cross_entropy, islice(batches, H))
        outer.step(model)
        trace.append(flat(model))
    return trace


def both():
    real = on_rank(lambda model, inner: DiLoCo(model, inner, H), ROUNDS * H)[H - 1 :: H]
    mine = {kind.__name__: train_page(kind) for kind in (page.OuterStep, SignTurned, NobodySpeaks)}
    return {name: all(map(torch.equal, real, trace)) for name, trace in mine.items()}


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_it_is_the_real_one_to_the_last_bit(ranks, device):
    for same in run_ranks(both, ranks, device=device):
        assert same == {"OuterStep": True, "SignTurned": False, "NobodySpeaks": ranks == 1}
