"""What the tests of pipelines share: models in stages, and the run of one process beside them.

All in float64: what differs by more than rounding is then a bug, also after Adam.
"""

import functools
from dataclasses import replace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import dtlearn
from dtlearn.models import GPT, GPTConfig, next_token_loss, snapshot_gradients, snapshot_parameters, train_reference
from dtlearn.pipeline_parallel import split_gpt, split_sequential, tied_embedding

TOLERANCE = 1e-10  # measured: below 1e-13
WIDTH, CLASSES = 6, 4
SMALL_GPT = GPTConfig(16, 8, 6, 2, 8)  # 8 links
TIED_GPT = replace(SMALL_GPT, tie_embeddings=True)


def sequential(links=8):
    """Links that a pipeline can be cut between; each has a linear layer, which split backward treats apart."""
    last = nn.Linear(WIDTH, CLASSES)
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(links - 1)), last).double()


def frozen():
    """The sequential model, whose first and a middle link are not trained."""
    model = sequential()
    model[0].requires_grad_(False)
    model[4].requires_grad_(False)
    return model


MODELS = {
    "sequential": sequential,
    "frozen": frozen,
    "gpt": lambda: GPT(SMALL_GPT).double(),
    "tied": lambda: GPT(TIED_GPT).double(),
}


class PlainSGD:
    """Gradient descent. torch's optimizers load its compiler first, which takes each rank a second or more."""

    def __init__(self, parameters):
        self.parameters = list(parameters)

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self):
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter -= 0.1 * parameter.grad


OPTIMIZERS = {
    "plain": PlainSGD,
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
}


def loss_of(name):
    return next_token_loss if name in ("gpt", "tied") else F.cross_entropy


def even(num_links, num_stages):
    """The boundaries of stages with almost equally many links."""
    return tuple(stage * num_links // num_stages for stage in range(num_stages + 1))


def stages_of(name, num_stages):
    """The model with seed 0, on this rank's device, in stages, and where a parameter is in two of them."""
    torch.manual_seed(0)
    model = MODELS[name]().to(dtlearn.device())
    if isinstance(model, GPT):
        return split_gpt(model, even(8, num_stages)), tied_embedding(model.config, num_stages)
    return split_sequential(model, even(len(model), num_stages)), ()


def batches(name, rows, steps, seed=7, device=None):
    device = device or dtlearn.device()
    g = torch.Generator().manual_seed(seed)
    if name in ("gpt", "tied"):
        return [(t[:, :-1], t[:, 1:]) for t in torch.randint(16, (steps, rows, 6), generator=g).to(device)]
    inputs = torch.randn(steps, rows, WIDTH, generator=g, dtype=torch.float64).to(device)
    return list(zip(inputs, torch.randint(CLASSES, (steps, rows), generator=g).to(device), strict=True))


@functools.cache
def reference(name, optimizer, rows, steps):
    """One process, on the CPU: the loss of each step, and the gradients and parameters after it by name."""
    run = train_reference(MODELS[name], OPTIMIZERS[optimizer], batches(name, rows, steps, device="cpu"), loss_of(name))
    return [
        (step.loss, {**{f"{n}.grad": g for n, g in step.gradients.items()}, **step.parameters}) for step in run.steps
    ]


def snapshot(modules):
    """Gradients and parameters of these stages."""
    found = {}
    for module in modules:
        found |= {f"{name}.grad": value for name, value in snapshot_gradients(module).items()}
        found |= snapshot_parameters(module)
    return found


def distance(mine, whole, tied=()):
    """The largest difference of a rank's tensors from those of the whole model; infinite if a gradient is missing.

    A tied parameter has one name in the whole model, that of its first place.
    """
    aliases = {name + end: tied[0][1] + end for _, name in tied for end in ("", ".grad")}
    expected = {name: whole.get(aliases.get(name, name)) for name in mine}
    away = 0.0
    for name, value in mine.items():
        if expected[name] is None or expected[name].shape != value.shape:
            return torch.inf
        away = max(away, (value - expected[name]).abs().nan_to_num(torch.inf).max().item())
    missing = [
        n for n in mine if not n.endswith(".grad") and f"{aliases.get(n, n)}.grad" in whole and f"{n}.grad" not in mine
    ]
    return torch.inf if missing else away


def message_of(action):
    """What an action raises, in words with its notes; "" if nothing."""
    try:
        action()
    except Exception as error:
        return "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])
    return ""


def first_ranks(size):
    """A group of the first ranks; every rank of the world calls it."""
    return dist.new_group(list(range(size)))


class MatrixProducts(TorchDispatchMode):
    """Counts matrix products."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
        return func(*args, **(kwargs or {}))
