"""Random states and autocast, taken at one moment and put back at another."""

import pytest
import torch

from dtlearn.sharing.surroundings import current_surroundings


def test_random_numbers_come_again_and_the_rest_of_the_program_does_not_notice():
    torch.manual_seed(0)
    then = current_surroundings([torch.ones(1)])
    first = torch.rand(3)
    after = torch.get_rng_state()
    with then.restored():
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.get_rng_state(), after)


def test_they_are_put_back_after_an_error_too():
    then = current_surroundings([])
    torch.rand(1)
    after = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), then.restored():
        raise ZeroDivisionError
    assert torch.equal(torch.get_rng_state(), after)


def test_without_preserving_random_numbers_go_on():
    torch.manual_seed(0)
    then = current_surroundings([], preserve_rng_state=False)
    first = torch.rand(3)
    with then.restored():
        assert not torch.equal(torch.rand(3), first)
    assert then.random_states == {}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_entered_again(dtype):
    x = torch.ones(2, 2)
    with torch.autocast("cpu", dtype):
        inside = current_surroundings([x])
        with torch.autocast("cpu", enabled=False):
            disabled = current_surroundings([x])
    with inside.restored():
        assert (x @ x).dtype is dtype
        with disabled.restored():
            assert (x @ x).dtype is torch.float32
    assert (x @ x).dtype is torch.float32


def test_bytes_of_the_random_state():
    assert current_surroundings([]).random_states[torch.device("cpu")].nbytes == 5056


@pytest.mark.gpu
def test_a_gpus_random_numbers_come_again():
    x = torch.ones(1, device="cuda")
    then = current_surroundings([x])
    first = torch.rand(3, device="cuda")
    with then.restored():
        assert torch.equal(torch.rand(3, device="cuda"), first)
    assert then.random_states[x.device].nbytes == 16
