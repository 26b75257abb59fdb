import torch
import torch.distributed as dist
from torch.futures import Future

from dtlearn.gradient_compression.comparing.methods import METHODS, averaging, hooked
from dtlearn.gradient_compression.comparing.tasks import digits_task
from dtlearn.models import MLP
from dtlearn.runtime.run import run_ranks

WANTED = {
    *("no compression", "fp16", "QSGD", "random-k", "top-k", "sign", "PowerSGD", "DGC", "1-bit Adam"),
    *("local SGD", "post-local SGD", "DiLoCo", "streaming DiLoCo", "top-k, no feedback", "sign, no feedback"),
}


def test_every_method_of_the_chapter_is_there():
    assert set(METHODS) == WANTED
    assert all(method.name == name for name, method in METHODS.items())


def double_hook(state, bucket):
    """Gives another tensor than the buffer, as hooks may."""
    future = Future()
    future.set_result(bucket.buffer() * state)
    return future


def test_a_hook_replaces_the_gradients_and_the_next_begin_at_zero():
    model, task = MLP((3, 2)), digits_task()
    update, _ = hooked("mine", lambda: 2.0, double_hook, lambda m, _: torch.optim.SGD(m.parameters(), lr=1.0)).set_up(
        model, task
    )
    before = [p.detach().clone() for p in model.parameters()]
    for times in (1, 2):
        model(torch.ones(1, 3)).sum().backward()
        update()
        for old, p in zip(before, model.parameters(), strict=True):
            assert torch.allclose(p, old - times * 2.0)
            assert not p.grad.any()


def two_local_steps():
    torch.manual_seed(0)
    model = MLP((3, 2))
    made = []

    class Counting:
        def __init__(self, model, optimizer):
            self.optimizer = optimizer
            made.append(self)

        def step(self):
            self.optimizer.step()

    update, finish = averaging("mine", Counting, lambda m, _: torch.optim.SGD(m.parameters(), lr=1.0)).set_up(
        model, digits_task()
    )
    before = model.layers[0].bias.detach().clone()
    for _ in range(2):
        model(torch.ones(1, 3) * dist.get_rank()).sum().backward()
        update()
    finish()
    return len(made), (before - model.layers[0].bias).tolist()


def test_local_steps_are_taken_with_this_ranks_gradients():
    for made, moved in run_ranks(two_local_steps, 2, device="cpu"):
        assert made == 1 and moved == [2.0, 2.0]
