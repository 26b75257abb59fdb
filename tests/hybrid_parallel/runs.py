"""What the tests of this package train: a small GPT on uneven rows, in one process and on a mesh."""

from contextlib import ExitStack, contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F

import dtlearn
from dtlearn.hybrid_parallel import HybridGPT, MeshLayout, mesh_state
from dtlearn.models import GPT, GPTConfig, snapshot_parameters

TOLERANCE = 1e-11  # measured: below 1e-14 for losses and norms, 1e-12 for parameters after Adam
B, T, V, STEPS, MAX_NORM = 8, 8, 13, 3, 0.5  # 13 tokens: padded for 2 and 4 ranks. The first norms are above 0.5
SIZES = {"vocab_size": V, "context_length": T, "num_layers": 4, "num_heads": 4, "hidden_size": 16}
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.3, "momentum": 0.9}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01}),
}
LAYOUTS = {
    "1": MeshLayout(),
    "tp2": MeshLayout(tp=2),
    "pp2": MeshLayout(pp=2),
    "tp2 dp2": MeshLayout(tp=2, dp=2),
    "pp2 dp2": MeshLayout(pp=2, dp=2),
    "tp2 pp2": MeshLayout(tp=2, pp=2),
    "dp4": MeshLayout(dp=4),
    "tp2 pp2 dp2": MeshLayout(tp=2, pp=2, dp=2),
    "dp2 pp2 tp2, in the wrong order": MeshLayout(tp=2, pp=2, dp=2, order=("dp", "pp", "cp", "ep", "tp")),
}


def config(tied=False, **sizes):
    return GPTConfig(**{**SIZES, **sizes}, tie_embeddings=tied)


def batches(steps=STEPS):
    """Rows with 8, 3, 6 and no tokens that count: whoever takes a mean of means goes wrong."""
    generator = torch.Generator().manual_seed(3)
    for _ in range(steps):
        windows = torch.randint(V, (B, T + 1), generator=generator)
        targets = windows[:, 1:].clone()
        targets[0, 3:] = targets[1] = targets[5, :2] = -100
        yield windows[:, :-1].contiguous(), targets


@contextmanager
def float64():
    """Make float64 the default, so that random numbers are drawn in it too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def in_one_process(optimizer, tied=False, steps=STEPS):
    """Losses and norms of each step, and the parameters after all; on the CPU."""
    optimizer_class, options = OPTIMIZERS[optimizer]
    with float64():
        torch.manual_seed(0)
        model = GPT(config(tied))
        update, found = optimizer_class(model.parameters(), **options), []
        for tokens, targets in batches(steps):
            update.zero_grad()
            loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
            update.step()
            found.append((loss.item(), norm.item()))
    return found, snapshot_parameters(model)


def make(layout, optimizer="adamw", tied=False, **options):
    """The model on this rank; m = 2 unless told otherwise. Every rank has other random numbers before."""
    optimizer_class, own = OPTIMIZERS[optimizer]
    torch.manual_seed(dist.get_rank() + 5)
    arguments = {"num_microbatches": 2, "max_norm": MAX_NORM, "optimizer_class": optimizer_class, **own, **options}
    return HybridGPT(config(tied), layout, **arguments)


def on_mesh(layout, cases):
    """The results of `in_one_process` for each case, with what the rank would save in place of the parameters."""
    with float64():
        return [trained(make(layout, **case)) for case in cases]


def trained(model):
    steps = [model.step(tokens.to(dtlearn.device()), targets.to(dtlearn.device())) for tokens, targets in batches()]
    return [(step.loss, step.norm) for step in steps], on_cpu(mesh_state(model))


def on_cpu(state):
    return torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, state)


def with_patches(fn, patches):
    """Call `fn` while these attributes are replaced: (object, name, value)."""
    with ExitStack() as stack:
        for owner, name, value in patches:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        return fn()
