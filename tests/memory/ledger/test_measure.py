"""The ledger over real steps, against formulae: every category, to the byte, alone and on ranks."""

import functools

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as TorchDDP

from dtlearn.data_parallel import DistributedDataParallel, NaiveDataParallel
from dtlearn.memory import CATEGORIES, record_on_ranks, record_step
from dtlearn.memory.arithmetic.activations import gpt_activations, mlp_activations, table_bytes
from dtlearn.memory.arithmetic.training_state import optimizer_state_of
from dtlearn.models import GPT, MLP, GPTConfig, next_token_loss
from dtlearn.runtime.run import run_ranks

SIZES, CONFIG = (16, 32, 32, 5), GPTConfig(48, 16, 2, 4, 32)
BATCH, LENGTH = 6, 10
LOSS = 4  # bytes: the caller's variable, until the step is over


def mlp_batch(rank):
    torch.manual_seed(rank)
    return torch.randn(BATCH, SIZES[0]), torch.randint(SIZES[-1], (BATCH,))


def gpt_batch(rank):
    torch.manual_seed(rank)
    tokens = torch.randint(CONFIG.vocab_size, (BATCH, LENGTH + 1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


MODELS = {
    "MLP": (lambda: MLP(SIZES), mlp_batch, F.cross_entropy, mlp_activations(SIZES, BATCH)),
    "GPT": (lambda: GPT(CONFIG), gpt_batch, next_token_loss, gpt_activations(CONFIG, BATCH, LENGTH)),
}
OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "Adam": torch.optim.Adam,
}
WRAPPERS = {
    "naive": (NaiveDataParallel, "none"),
    "ours": (DistributedDataParallel, "beside"),
    "ours, views": (functools.partial(DistributedDataParallel, gradient_as_bucket_view=True), "views"),
    "torch's": (TorchDDP, "beside"),
    "torch's, views": (functools.partial(TorchDDP, gradient_as_bucket_view=True), "views"),
}


def expected(model_name, optimizer_name, buckets="none"):
    """Bytes of each category after each phase, by formula."""
    make_model, make_batch, _, table = MODELS[model_name]
    parameters = list(make_model().parameters())
    size = sum(p.numel() * 4 for p in parameters)
    fixed = {
        **dict.fromkeys(CATEGORIES, 0),
        "parameters": size,
        "optimizer state": optimizer_state_of(parameters, optimizer_name),
        "communication": size if buckets == "beside" else 0,
        "gradients": size if buckets == "views" else 0,  # the buckets, which stay
        "inputs": sum(tensor.nbytes for tensor in make_batch(0)),
        "temporaries": LOSS,
    }
    return {
        "forward": fixed | {"activations": table_bytes(table)},
        "backward": fixed | {"gradients": size},
        "optimizer step": fixed | {"gradients": size},
        "zero_grad": fixed,
    }


def after_phases(record):
    timeline = record.timeline()
    return {p.name: {name: timeline[name][p.stop] for name in CATEGORIES} for p in record.phases}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_a_step_is_what_the_formulae_say(model, optimizer):
    torch.manual_seed(0)
    make_model, make_batch, loss_fn, _ = MODELS[model]
    trained = make_model()
    record = record_step(trained, OPTIMIZERS[optimizer](trained.parameters()), make_batch(0), loss_fn)
    assert after_phases(record) == expected(model, optimizer)
    assert record.live()[0] == sum(expected(model, optimizer)["zero_grad"].values()) - LOSS


STEPS = [
    (model, optimizer, wrapper)
    for model, optimizer in (("MLP", "SGD"), ("GPT", "Adam"))
    for wrapper in ("ours", "ours, views")
]


def all_steps():
    """On each rank: the records of all `STEPS`, one after the other."""
    records = []
    for model, optimizer, wrapper in STEPS:
        make_model, make_batch, loss_fn, _ = MODELS[model]
        wrapped = WRAPPERS[wrapper][0](make_model())
        trained = OPTIMIZERS[optimizer](wrapped.parameters())
        records.append(record_step(wrapped, trained, make_batch(dist.get_rank()), loss_fn))
    return records


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_on_ranks_the_buckets_come_on_top_or_are_the_gradients(world_size):
    for records in run_ranks(all_steps, world_size):
        for (model, optimizer, wrapper), record in zip(STEPS, records, strict=True):
            assert after_phases(record) == expected(model, optimizer, WRAPPERS[wrapper][1])


@pytest.mark.parametrize("wrapper", ["naive", "torch's", "torch's, views"])
def test_other_wrappers_are_counted_as_ours(wrapper):
    make_model, make_batch, loss_fn, _ = MODELS["GPT"]
    wrap, buckets = WRAPPERS[wrapper]
    for record in record_on_ranks(2, make_model, torch.optim.Adam, make_batch, loss_fn, wrap=wrap):
        assert after_phases(record) == expected("GPT", "Adam", buckets)


def test_zeros_in_place_of_none_keep_the_gradients():
    """What `zero_grad` frees, it frees by letting go of the tensors."""
    model = MLP(SIZES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    record = record_step(model, optimizer, mlp_batch(0), F.cross_entropy, set_to_none=False)
    size = sum(p.nbytes for p in model.parameters())
    assert set(record.live("gradients")) == {size}


def test_the_record_begins_with_the_second_step():
    model = MLP(SIZES)
    record = record_step(model, torch.optim.Adam(model.parameters()), mlp_batch(0), F.cross_entropy)
    assert [phase.name for phase in record.phases] == ["forward", "backward", "optimizer step", "zero_grad"]
    assert record.phases[0].start == 0 and record.phases[-1].stop <= record.clock
    assert {a.phase for a in record.allocations if a.made == 0} == {""}
    assert record.live("optimizer state")[0] > 0  # made in the first
