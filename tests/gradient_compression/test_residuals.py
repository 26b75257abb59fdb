"""What is kept belongs to parameters: it is found again when buckets change, and only what is finite is kept."""

import pytest
import torch
from torch import nn

from dtlearn.gradient_compression.residuals import Residuals, all_finite, keep_if


def parameters():
    return [nn.Parameter(torch.zeros(shape)) for shape in ((2, 3), (4,), (), (0,))]


def flat(numel, dtype=torch.float32):
    return torch.zeros(numel, dtype=dtype)


def test_a_bucket_gets_the_same_memory_again():
    a, b, c, d = parameters()
    residuals = Residuals()
    whole = residuals.of([a, b, c, d], flat(11))
    assert torch.equal(whole, flat(11))
    whole += 1
    assert residuals.of([a, b, c, d], flat(11)) is whole
    assert [len(residuals.parts[p]) for p in (a, b, c, d)] == [6, 4, 1, 0]


def test_after_a_change_of_buckets_each_parameter_has_its_own():
    a, b, c, _ = parameters()
    residuals = Residuals()
    residuals.of([a, b], flat(10)).copy_(torch.arange(10.0))
    residuals.of([c], flat(1)).fill_(7.0)
    assert residuals.of([c, b], flat(5)).tolist() == [7, 6, 7, 8, 9]
    residuals.of([c, b], flat(5)).mul_(10)
    assert residuals.of([b, a], flat(10)).tolist() == [60, 70, 80, 90, 0, 1, 2, 3, 4, 5]
    assert residuals.of([a, b], flat(10)).tolist() == [
        0,
        1,
        2,
        3,
        4,
        5,
        60,
        70,
        80,
        90,
    ]  # not the first bucket's old memory


@pytest.mark.parametrize(
    ("given", "kept"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
)
def test_it_is_kept_in_float32_at_least(given, kept):
    assert Residuals().of(parameters()[:1], flat(6, given)).dtype == kept


@pytest.mark.parametrize("numel", [5, 7])
def test_a_gradient_of_another_size_is_refused(numel):
    with pytest.raises(ValueError, match=rf"1 parameters as one flat tensor of 6 elements; got shape \({numel},\)"):
        Residuals().of(parameters()[:1], flat(numel))


def test_a_state_is_a_copy_and_is_taken_up_again():
    model, other = nn.Linear(2, 3), nn.Linear(2, 3)
    saved_from, loaded_to = Residuals(), Residuals()
    saved_from.of([model.weight], flat(6)).copy_(torch.arange(6.0))
    state = saved_from.state_dict(model)
    saved_from.of([model.weight], flat(6)).zero_()
    loaded_to.of([other.weight, other.bias], flat(9)).fill_(5.0)
    loaded_to.load_state_dict(state, other)
    state["weight"].zero_()
    assert list(state) == ["weight"]
    assert loaded_to.of([other.weight, other.bias], flat(9)).tolist() == [0, 1, 2, 3, 4, 5, 0, 0, 0]


@pytest.mark.parametrize(
    ("other", "message"), [(nn.Linear(2, 4), "which has 8 here"), (nn.ReLU(), "which does not exist")]
)
def test_the_state_of_another_model_is_refused(other, message):
    model, residuals = nn.Linear(2, 3), Residuals()
    residuals.of([model.weight], flat(6))
    with pytest.raises(ValueError, match=f"it keeps 6 elements for weight, {message}"):
        Residuals().load_state_dict(residuals.state_dict(model), other)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_one_element_that_is_not_finite_is_seen_wherever_it_stands(broken, dtype):
    for place in range(0, 70):  # inside a vector of the processor, and behind the last whole one
        tensor = torch.zeros(70, dtype=dtype)
        tensor[place] = broken
        assert not all_finite(tensor)
        tensor[place] = torch.finfo(dtype).max
        assert all_finite(tensor) and all_finite(-tensor)


def test_there_is_nothing_in_an_empty_tensor_that_is_not_finite():
    assert all_finite(flat(0))


def test_only_what_is_finite_is_kept():
    kept = torch.ones(3)
    left = torch.tensor([1.0, torch.nan, 2.0])
    keep_if(all_finite(left), [(kept, left)])
    assert kept.tolist() == [1, 1, 1]
    left = torch.full((3,), 3e38)  # the sum would be infinite
    keep_if(all_finite(left), [(kept, left)])
    assert torch.equal(kept, left)
    keep_if(all_finite(flat(0)), [(flat(0), flat(0))])
