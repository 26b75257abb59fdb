"""Streaming DiLoCo: one fragment without overlap is DiLoCo; all workers in one process; fragments in a checkpoint."""

import pytest
import torch
from torch import nn

from dtlearn.gradient_compression.averaging.diloco import DiLoCo
from dtlearn.gradient_compression.averaging.streaming import StreamingDiLoCo, strided_fragments
from dtlearn.models import MLP
from dtlearn.runtime.device import device as here
from tests.devices import run_ranks
from tests.gradient_compression.averaging.runs import (
    OPTIMIZERS,
    TOLERANCE,
    batch,
    copied,
    difference,
    flat,
    gradients,
    make_model,
    on_rank,
    train,
)

STEPS, PERIOD = 13, 4  # the first fragment leaves after steps 2, 6 and 10, the second after 4, 8 and 12
LAYERS = ((0, 35), (35, 53))  # where the parameters of the two layers lie in the flat vector


def to_the_end(make):
    """A run, ended: what is on its way is waited for."""
    made = []

    def keep(model, inner):
        made.append(make(model, inner))
        return made[0]

    trace = on_rank(keep, STEPS)
    made[0].synchronize()
    return trace


def in_two(model, inner, **options):
    return StreamingDiLoCo(model, inner, PERIOD, strided_fragments(list(model.layers), 3)[::2], **options)


def by_paper(num_workers, overlap, mixing):
    """All workers in one process, each fragment by its own account; returns the parameters by step, (workers, n)."""
    models = [make_model() for _ in range(num_workers)]
    optimizers = [OPTIMIZERS["adamw"](m.parameters()) for m in models]
    theta, momentum, on_its_way, trace = flat(models[0]), torch.zeros(53, dtype=torch.float64), {}, []
    for step in range(1, STEPS + 1):
        for worker, (model, own) in enumerate(zip(models, optimizers, strict=True)):
            gradients(model, [batch(worker, step - 1)])
            own.step()
        flats = torch.stack([flat(m) for m in models])
        for k, (start, end) in enumerate(LAYERS):
            if step % PERIOD == (2, 0)[k]:
                on_its_way[step + overlap, k] = theta[start:end] - flats[:, start:end].mean(0)
            if (step, k) in on_its_way:
                delta = on_its_way.pop((step, k))
                momentum[start:end] = 0.9 * momentum[start:end] + delta
                theta[start:end] -= 0.7 * (delta + 0.9 * momentum[start:end])
                flats[:, start:end] = mixing * flats[:, start:end] + (1 - mixing) * theta[start:end]
        for model, values in zip(models, flats, strict=True):
            nn.utils.vector_to_parameters(values.clone(), model.parameters())
        trace.append(flats)
    return trace


CASES = [(0, 0.0), (1, 0.0), (3, 0.25)]  # overlap, mixing


def several():
    diloco = on_rank(lambda model, inner: DiLoCo(model, inner, PERIOD), STEPS)
    whole = to_the_end(lambda model, inner: StreamingDiLoCo(model, inner, PERIOD, [list(model.parameters())]))
    fragments = [
        to_the_end(lambda model, inner, o=overlap, m=mixing: in_two(model, inner, overlap=o, mixing=m))
        for overlap, mixing in CASES
    ]
    return all(map(torch.equal, diloco, whole)), fragments


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_it_is_diloco_and_all_workers_in_one_process(ranks, device):
    run = run_ranks(several, ranks, device=device)
    assert all(same for same, _ in run)
    for number, case in enumerate(CASES):
        assert difference([fragments[number] for _, fragments in run], by_paper(ranks, *case)) < TOLERANCE, case
    assert difference([run[0][1][1]], by_paper(ranks, 2, 0.0)) > 1e-4  # another overlap is noticed


def interrupted():
    """Stopped with a fragment on its way: as without a stop; then ended, and nothing is on its way."""
    model = make_model().to(here())
    first = in_two(model, OPTIMIZERS["adamw"](model.parameters()), overlap=2, mixing=0.25)
    train(first, model, 7)
    saved = copied((model.state_dict(), first.state_dict()))
    trace = train(first, model, 4, start=7)
    first.synchronize()
    other = make_model(3).to(here())
    second = in_two(other, OPTIMIZERS["adamw"](other.parameters()), overlap=2, mixing=0.25)
    other.load_state_dict(saved[0])
    second.load_state_dict(saved[1])
    again = train(second, other, 4, start=7)
    on_its_way = list(saved[1]["in_flight"]), list(second.state_dict()["in_flight"])
    second.synchronize()
    return all(map(torch.equal, trace, again)), on_its_way, second.state_dict()["in_flight"]


def test_a_checkpoint_with_a_fragment_on_its_way(device):
    for same, on_its_way, at_the_end in run_ranks(interrupted, 2, device=device):
        assert same and on_its_way == ([0], [0]) and at_the_end == {}


def for_the_record():
    to_the_end(lambda model, inner: in_two(model, inner, overlap=1))


def test_bytes_and_peak_of_the_record():
    run = run_ranks(for_the_record, 2, device="cpu", record=True)
    for rank in range(2):
        assert [event.nbytes for event in run.record.select(rank=rank, op="all_reduce")] == 3 * [8 * 35, 8 * 18]


def test_fragments_are_strided():
    model = MLP((2, 2, 2, 2, 2))
    blocks = [layer for layer in model.layers if isinstance(layer, nn.Linear)]
    blocks[3].weight = blocks[0].weight  # tied: in the first one's fragment only
    first, second = strided_fragments(blocks, 2)
    assert list(map(id, first)) == [id(p) for block in (blocks[0], blocks[2]) for p in block.parameters()]
    assert list(map(id, second)) == [*map(id, blocks[1].parameters()), id(blocks[3].bias)]
    for number in (0, 5):
        with pytest.raises(ValueError, match="from 1 to 4, the number of blocks; got"):
            strided_fragments(blocks, number)


def bad_input():
    model = make_model()
    inner, (first, second) = OPTIMIZERS["sgd"](model.parameters()), strided_fragments(list(model.layers), 3)[::2]
    for fragments, options, words in (
        ([first], {}, "must be in one fragment, but layers.2.weight is in 0"),
        ([first, first + second], {}, "layers.0.weight is in 2"),
        ([first, second, [nn.Parameter(torch.zeros(1))]], {}, "a parameter of another model, which is not trained"),
        ([[p] for p in model.parameters()] * 2, {}, "expected 1 to 4 fragments"),
        ([], {}, "expected 1 to 4 fragments"),
        ([first, second], {"overlap": 4}, "overlap must be from 0 to period - 1 = 3"),
        ([first, second], {"mixing": 1.0}, "got 0 and 1.0"),
    ):
        with pytest.raises(ValueError, match=words):
            StreamingDiLoCo(model, inner, PERIOD, fragments, **options)


def test_bad_input():
    run_ranks(bad_input, 1, device="cpu")
