"""What is compressed, how many bytes that makes, and a state that goes on."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.gradient_compression.powersgd.hook import powersgd_hook
from dtlearn.gradient_compression.powersgd.state import PowerSGDState
from tests.data_parallel.runs import message_of
from tests.devices import run_ranks
from tests.gradient_compression.runs import loaded, same_bits, small, train, wrapped_with


@pytest.mark.parametrize(
    ("shape", "low"),
    [
        ((100, 50), (100, 50, 4)),
        ((64, 3, 8, 8), (64, 192, 4)),  # a convolution: a row for each output channel
        ((100, 8), None),  # 4 (100 + 8) 2 > 100 8
        ((1000,), None),
        ((), None),
        ((0,), None),
        ((0, 8), None),
    ],
)
def test_what_is_worth_it_is_compressed(shape, low):
    assert PowerSGDState(4).low_rank(shape) == low


def test_a_rank_is_no_larger_than_the_matrix():
    assert PowerSGDState(100, min_compression_rate=0.01).low_rank((6, 4)) == (6, 4, 4)


def test_bytes():
    state = PowerSGDState(2)
    assert state.nbytes([(100, 50), (50,), ()]) == 4 * (2 * 150 + 50 + 1)


def going_on(folder, warm_start):
    """Whether a run that goes on from step 3 equals the whole one: with the saved state, and without it."""
    whole = train(wrapped_with("ours", PowerSGDState(2, warm_start=warm_start), powersgd_hook), steps=6)
    first = PowerSGDState(2, warm_start=warm_start)
    model = wrapped_with("ours", first, powersgd_hook)
    train(model, steps=3)
    file = f"{folder}/{dist.get_rank()}.pt"
    torch.save({"model": model.module.state_dict(), "state": first.state_dict(model.module)}, file)
    found = []
    for loads in (True, False):
        saved = torch.load(file, weights_only=True)
        second = PowerSGDState(2, warm_start=warm_start)
        model = wrapped_with("ours", second, powersgd_hook, make=lambda saved=saved: loaded(saved["model"]))
        if loads:
            second.load_state_dict(saved["state"], model.module)
        found.append(same_bits(train(model, steps=3, first=3), whole[3:]))
    return found


@pytest.mark.parametrize("warm_start", [True, False])  # without it, every step draws its Qs
def test_a_state_goes_on_bit_by_bit(tmp_path, device, warm_start):
    assert run_ranks(going_on, 2, str(tmp_path), warm_start, device=device).values == [[True, False]] * 2


def what_is_kept():
    """Whether a residual is kept, by dim: of matrices, and of vectors, which are sent as they are."""
    state = PowerSGDState(1)
    train(wrapped_with("ours", state, powersgd_hook), steps=2)
    parts = state.residuals.parts.items()
    return {dim: any(bool(part.any()) for p, part in parts if p.dim() == dim) for dim in (1, 2)}


def test_of_what_is_sent_whole_nothing_is_kept():
    assert run_ranks(what_is_kept, 2, device="cpu").values == [{1: False, 2: True}] * 2


def loading(change):
    model = small()
    state = {**PowerSGDState(2).state_dict(model), **change}
    return message_of(lambda: PowerSGDState(2).load_state_dict(state, model))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"world_size": 4}, "ValueError: this state was kept by one of 4 ranks, and 1 train now"),
        ({"rank": 3}, "ValueError: expected the state of rank 0 of 1, but this is that of rank 3"),
        (
            {"qs": {"layers.1.weight": torch.zeros(16, 3)}},
            "ValueError: the state has a Q of shape (16, 3) for layers.1.w",
        ),
        ({"qs": {"gone": torch.zeros(3)}}, "ValueError: the state has a Q of shape (3,) for gone, expected None"),
        ({"residuals": {"gone": torch.zeros(3)}}, "ValueError: the state is of another model"),
        ({}, ""),
    ],
)
def test_the_state_of_another_run_is_refused(change, message):
    found = run_ranks(loading, 1, change, device="cpu")[0]
    assert found.startswith(message) and bool(found) == bool(message), found


@pytest.mark.parametrize(("matrix_rank", "start_step"), [(0, 0), (1, -1)])
def test_what_cannot_be_is_refused(matrix_rank, start_step):
    with pytest.raises(ValueError, match=f"matrix_rank >= 1 and start_step >= 0; got {matrix_rank} and {start_step}"):
        PowerSGDState(matrix_rank, start_step=start_step)
