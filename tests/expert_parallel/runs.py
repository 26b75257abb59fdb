"""What the tests of expert parallelism share: a GPT trained on a mesh of dp x ep ranks beside one process.

All run in float64: what differs by more than rounding is then a bug, also after AdamW.
"""

from dataclasses import replace

import torch
import torch.distributed as dist

import dtlearn
from dtlearn.expert_parallel import (
    ExpertGPTConfig,
    ExpertParallelMixture,
    GatheredMixture,
    average_gradients,
    expert_gpt,
    mixtures,
    put_mixtures,
)
from dtlearn.expert_parallel.gradients import expert_parameters
from dtlearn.models import next_token_loss, snapshot_parameters

TOLERANCE = 1e-10
STEPS, ROWS, SEED = 3, 4, 11
SMALL = ExpertGPTConfig(
    vocab_size=16,
    context_length=6,
    num_layers=2,
    num_heads=2,
    hidden_size=8,
    balance_coefficient=0.1,
    z_coefficient=0.01,
)
CONFIGS = {
    "top 2": SMALL,
    "top 1": replace(SMALL, top_k=1),
    "top 3, not renormalised, tied": replace(SMALL, top_k=3, renormalise=False, tie_embeddings=True),
}
OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.3, momentum=0.9),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
}
CLASSES = {"all-to-all": ExpertParallelMixture, "all-gather": GatheredMixture}


def batches(config, steps=STEPS):
    """Global batches of tokens and targets, the same on all ranks."""
    generator = torch.Generator().manual_seed(3)
    shape = (2, ROWS, config.context_length)
    return [torch.randint(config.vocab_size, shape, generator=generator).to(dtlearn.device()) for _ in range(steps)]


def whole_model(config):
    """The model on one process; its weights are larger than GPT-2's, so that routing is uneven."""
    gpt = expert_gpt(config, seed=SEED).double().to(dtlearn.device())
    scale_routers(gpt)
    return gpt


def scale_routers(gpt):
    with torch.no_grad():
        for mixture in mixtures(gpt):
            mixture.router.weight.mul_(30)


def make_groups(ep, dp):
    """This rank's groups of a mesh of dp x ep ranks, ep innermost; None outside of it. Every process makes all."""
    mine, mesh = {}, torch.arange(dp * ep).view(dp, ep)
    for name, lines in (("ep", mesh), ("dp", mesh.t()), ("all", mesh.view(1, -1))):
        for ranks in lines.tolist():
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                mine[name] = group
    return mine or None


def divided_model(config, groups, kind="all-to-all", **options):
    """This rank's model; its experts are those of `whole_model`."""
    gpt = expert_gpt(config, seed=SEED).to(dtlearn.device())
    options |= {"mixture_class": CLASSES[kind], "group": groups["ep"], "replicas": groups["all"]}
    put_mixtures(gpt, config, seed=SEED, **options)
    gpt.double()
    scale_routers(gpt)
    return gpt


def own_part(name, full, mine, groups):
    """This rank's part of a parameter of the whole model, or of its gradient."""
    if ".experts." not in name:
        return full
    return full.chunk(dist.get_world_size(groups["ep"]))[dist.get_rank(groups["ep"])]


def reference_steps(config, optimizer, steps=STEPS):
    """Losses, gradients and parameters of each step on one process with the global batch."""
    model, found = whole_model(config), []
    stepper = OPTIMIZERS[optimizer](model.parameters())
    for tokens, targets in batches(config, steps):
        stepper.zero_grad()
        loss = next_token_loss(model(tokens), targets)
        loss.backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
        stepper.step()
        auxiliary = sum(mixture.auxiliary_loss for mixture in mixtures(model))
        found.append((loss.detach(), auxiliary, gradients, snapshot_parameters(model)))
    return found


def differences(config, optimizer, groups, kind="all-to-all", steps=STEPS, **options):
    """The largest difference from one process of losses, auxiliary losses, gradients, and parameters, on this rank."""
    model, worst = divided_model(config, groups, kind, **options), {}
    stepper = OPTIMIZERS[optimizer](model.parameters())
    rank, size = dist.get_rank(groups["all"]), dist.get_world_size(groups["all"])
    expected = reference_steps(config, optimizer, steps)

    def note(what, one, other):
        assert one.shape == other.shape, (what, one.shape, other.shape)
        worst[what] = max(worst.get(what, 0.0), (one - other).abs().max().item())

    for (tokens, targets), (of_loss, of_auxiliary, gradients, parameters) in zip(
        batches(config, steps), expected, strict=True
    ):
        stepper.zero_grad()
        loss = next_token_loss(model(tokens.chunk(size)[rank]), targets.chunk(size)[rank])
        loss.backward()
        average_gradients(model, expert_replicas=groups["dp"], replicas=groups["all"])
        mean = torch.stack([loss.detach(), sum(mixture.auxiliary_loss for mixture in mixtures(model))])
        dist.all_reduce(mean, group=groups["all"])
        note("loss", mean[0] / size, of_loss)
        note("auxiliary loss", mean[1] / size, of_auxiliary)
        for name, p in model.named_parameters():
            of_expert = "experts" if ".experts." in name else "other"
            note(f"{of_expert} gradients", p.grad, own_part(name, gradients[name], p, groups))
        stepper.step()
        for name, p in model.named_parameters():
            note("parameters", p.detach().cpu(), own_part(name, parameters[name], p, groups))
    return worst


def on_meshes(meshes, cases):
    """On each rank: `{mesh: {case: differences}}` of the meshes that it is in. A case: arguments of `differences`."""
    torch.manual_seed(dist.get_rank())  # ranks are seeded differently
    found = {}
    for ep, dp in meshes:
        groups = make_groups(ep, dp)
        if groups is not None:
            found[ep, dp] = {case: differences(CONFIGS[case[0]], *case[1:2], groups, *case[2:]) for case in cases}
        dist.barrier()
    return found


def on_device():
    """One case on whatever the ranks' device is: all ranks are one ep group."""
    return on_meshes([(dist.get_world_size(), 1)], [("top 2", "AdamW", kind) for kind in CLASSES])


def num_expert_parameters(model):
    return sum(p.numel() for p in expert_parameters(model).values())
