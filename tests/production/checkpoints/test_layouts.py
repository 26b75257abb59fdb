"""A job of one strategy is gone on with under another: data-parallel, ZeRO 3, tensor-parallel, one process."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.models import GPT, GPTConfig, next_token_loss
from dtlearn.production.checkpoints import Checkpointer, replicated_cuts, tensor_parallel_cuts
from dtlearn.production.checkpoints.format import CheckpointError
from dtlearn.production.checkpoints.layouts import load_shards, shards_of, wanted_by
from dtlearn.tensor_parallel import ParallelGPT
from dtlearn.zero import FullyShardedDataParallel, ShardedParameters, pieces_of_stage3
from tests.devices import run_ranks

CONFIG = GPTConfig(vocab_size=9, context_length=8, num_layers=1, num_heads=2, hidden_size=8)  # 9 rows: one is padded
LAYOUTS = {"one": 1, "data": 3, "zero3": 3, "tensor": 2}


def make(layout, seed):
    """A model in a layout, its parameters as pieces, an optimizer over them, and where they lie."""
    torch.manual_seed(seed)
    if layout == "tensor":
        model = ParallelGPT(CONFIG, seed=seed, dtype=torch.float64)
        sharded, cuts = ShardedParameters.of_module(model), tensor_parallel_cuts(model)
    elif layout == "zero3":
        module = GPT(CONFIG).double()
        cuts = replicated_cuts(module, copy=0, copies=1)
        model = FullyShardedDataParallel(module)
        sharded = pieces_of_stage3(model)
    else:
        model = GPT(CONFIG).double()
        ready = dist.is_initialized()
        copy, copies = (dist.get_rank(), dist.get_world_size()) if ready else (0, 1)
        sharded, cuts = ShardedParameters.of_module(model), replicated_cuts(model, copy=copy, copies=copies)
    return model, sharded, torch.optim.Adam(sharded.pieces, lr=0.01), cuts


def train(model, optimizer, steps=2):
    """The same tokens on every rank: so each layout has the gradient of one process."""
    tokens = torch.arange(18).view(2, 9) % CONFIG.vocab_size
    losses = []
    for _ in range(steps):
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        is_divided = isinstance(model, ParallelGPT)  # then so are its logits
        loss = model.loss(inputs, targets) if is_divided else next_token_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def save(folder, layout):
    model, sharded, optimizer, cuts = make(layout, seed=0)
    train(model, optimizer)
    shards, options = shards_of(sharded, optimizer, cuts)
    with Checkpointer(folder) as checkpointer:
        checkpointer.save(2, shards, shared={"optimizer": options})
    return train(model, optimizer)


def go_on(folder, layout):
    model, sharded, optimizer, cuts = make(layout, seed=1)
    with Checkpointer(folder) as checkpointer:
        loaded = checkpointer.load(lambda manifest: wanted_by(sharded, cuts, manifest))
    load_shards(sharded, optimizer, cuts, loaded.tensors, loaded.shared["optimizer"])
    return train(model, optimizer)


@pytest.mark.slow
@pytest.mark.parametrize("saved", LAYOUTS)
def test_every_layout_is_gone_on_with_by_every_other(saved, tmp_path):
    """Losses of the third and fourth step: they need all parameters and all of Adam's moments, and its count."""
    folder = str(tmp_path / "job")
    losses = run_ranks(save, LAYOUTS[saved], folder, saved, device="cpu")[0]
    for layout, ranks in LAYOUTS.items():
        if layout != saved or layout == "zero3":
            for own in run_ranks(go_on, ranks, folder, layout, device="cpu"):
                assert own == pytest.approx(losses, rel=1e-12), (saved, layout)


def without_moments(folder):
    from dtlearn.production.checkpoints import layouts

    layouts._keys = lambda manifest, name: []
    model, sharded, optimizer, cuts = make("one", seed=1)
    with Checkpointer(folder) as checkpointer:
        loaded = checkpointer.load(lambda manifest: layouts.wanted_by(sharded, cuts, manifest))
    load_shards(sharded, optimizer, cuts, loaded.tensors, loaded.shared["optimizer"])
    return train(model, optimizer)


def test_without_the_moments_the_losses_are_others(tmp_path):
    losses = run_ranks(save, 1, str(tmp_path), "one", device="cpu")[0]
    found = run_ranks(without_moments, 1, str(tmp_path), device="cpu")[0]
    assert found[0] == pytest.approx(losses[0], rel=1e-12) and abs(found[1] - losses[1]) > 1e-4


@pytest.mark.parametrize("copies", [1, 2, 5])
def test_copies_save_each_element_once(copies):
    model = torch.nn.Linear(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    parts = [
        shards_of(ShardedParameters.of_module(model), optimizer, replicated_cuts(model, copy=copy, copies=copies))[0]
        for copy in range(copies)
    ]
    assert torch.equal(torch.cat([part["model.weight"][1] for part in parts]), model.weight.detach().flatten())
    assert sum(part["optimizer.bias.momentum_buffer"][1].numel() for part in parts) == 4


def test_what_cannot_be_cut_is_refused():
    model = torch.nn.Linear(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sharded, cuts = ShardedParameters.of_module(model), replicated_cuts(model, copy=0, copies=1)
    optimizer.state[model.weight]["factored"] = torch.zeros(4)
    with pytest.raises(CheckpointError, match=r"keeps 'factored' of weight as \(4,\) for a piece of \(4, 3\)"):
        shards_of(sharded, optimizer, cuts)
    with pytest.raises(CheckpointError, match="the optimizer has 1 groups of parameters, and 2 were saved"):
        load_shards(sharded, optimizer, cuts, {}, [{}, {}])
