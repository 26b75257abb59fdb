"""Rounding, beside torch's casts: bit for bit, every neighbour, every tie."""

import pytest
import torch

from dtlearn.mixed_precision import rounding
from dtlearn.mixed_precision.formats import BF16, FORMATS, FP8_E4M3, FP8_E5M2, FP16, FP32, TF32
from dtlearn.mixed_precision.rounding import round_stochastically, round_to_nearest_even

IN_TORCH = [fmt for fmt in FORMATS.values() if fmt.dtype]
SMALL = [BF16, FP16, FP8_E4M3, FP8_E5M2]
ALL = list(FORMATS.values())


def same_bits(a, b):
    """Whether two float32 tensors are equal bit for bit; NaN has many patterns and one meaning."""
    assert a.dtype == b.dtype == torch.float32 and a.shape == b.shape
    return bool(((a.view(torch.int32) == b.view(torch.int32)) | (a.isnan() & b.isnan())).all())


def torch_saturates():
    """Since torch 2.13 its casts to e4m3 do."""
    return torch.tensor([1e9]).to(torch.float8_e4m3fn).float().isfinite().item()


def cast(x, fmt):
    return x.to(fmt.dtype).float()


def numbers_of(fmt):
    """Every number of a format, ascending, with all that is finite: (n,) float32."""
    integers = {8: torch.uint8, 16: torch.int16}[fmt.width]
    values = torch.arange(2**fmt.width).to(integers).view(fmt.dtype).float()
    return values[values.isfinite()].unique()


def neighbours(x):
    """x, and the float32 numbers just below and above it."""
    inf = torch.tensor(torch.inf)
    return torch.cat([torch.nextafter(x, -inf), x, torch.nextafter(x, inf)])


def edge_cases(fmt):
    """All numbers, all halves between two of them, those beside both, and the same around overflow."""
    numbers = numbers_of(fmt)
    halves = ((numbers[1:].double() + numbers[:-1].double()) / 2).float()  # exact: one more bit of mantissa
    step = numbers[-1] - numbers[-2]
    beyond = numbers[-1].double() + step.double() * torch.tensor([0.25, 0.5, 0.75, 1, 1.5], dtype=torch.float64)
    beyond = torch.cat([beyond, -beyond]).float()
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-45, -1e-45, 1e-40, 3e38, -3e38])
    return torch.cat([neighbours(numbers), neighbours(halves), neighbours(beyond), special])


def random_patterns(count, seed):
    """float32 of random bits: every exponent, NaN and subnormal numbers among them."""
    g = torch.Generator().manual_seed(seed)
    return torch.randint(-(2**31), 2**31, (count,), generator=g).to(torch.int32).view(torch.float32)


def agrees(x, fmt):
    """Whether our rounding is torch's cast."""
    return same_bits(round_to_nearest_even(x, fmt, saturate=fmt is FP8_E4M3 and torch_saturates()), cast(x, fmt))


@pytest.mark.parametrize("fmt", SMALL, ids=lambda fmt: fmt.name)
def test_all_numbers_all_ties_and_their_neighbours_as_torch_casts_them(fmt):
    x = edge_cases(fmt)
    assert len(x) > 2 * 3 * (2**fmt.width - 2 ** (fmt.mantissa_bits + 1) - 2)
    assert agrees(x, fmt)


@pytest.mark.parametrize("fmt", IN_TORCH, ids=lambda fmt: fmt.name)
def test_a_million_random_patterns_as_torch_casts_them(fmt):
    assert all(agrees(random_patterns(250_000, seed), fmt) for seed in range(4))


def test_tf32_as_by_its_bits():
    x = random_patterns(500_000, 0)
    x = x[x.isfinite()]
    bits = x.view(torch.int32).long() & 0xFFFFFFFF
    dropped = FP32.mantissa_bits - TF32.mantissa_bits
    is_odd = (bits >> dropped) & 1
    kept = (bits + 2 ** (dropped - 1) - 1 + is_odd) >> dropped << dropped
    expected = (kept - (kept >> 31 << 32)).to(torch.int32).view(torch.float32)
    assert same_bits(round_to_nearest_even(x, TF32), expected)


@pytest.mark.parametrize("fmt", ALL, ids=lambda fmt: fmt.name)
def test_tensors_are_rounded_as_single_numbers_are(fmt):
    x = random_patterns(2000, 1)
    one_by_one = torch.tensor([fmt.round(value) for value in x.double().tolist()])
    assert same_bits(round_to_nearest_even(x, fmt), one_by_one)


def test_beyond_the_largest_number():
    x = torch.tensor([464.0, 464.1, -500.0, torch.inf, -torch.inf, torch.nan])
    nan, inf = torch.nan, torch.inf
    cases = [
        (FP8_E4M3, False, [448, nan, nan, nan, nan, nan]),
        (FP8_E4M3, True, [448, 448, -448, 448, -448, nan]),
        (FP8_E5M2, False, [448, 448, -512, inf, -inf, nan]),
        (FP8_E5M2, True, [448, 448, -512, 57344, -57344, nan]),
    ]
    for fmt, saturate, expected in cases:
        assert same_bits(round_to_nearest_even(x, fmt, saturate=saturate), torch.tensor(expected, dtype=torch.float32))


@pytest.mark.parametrize("fmt", ALL, ids=lambda fmt: fmt.name)
def test_wider_and_narrower_tensors_are_rounded_once(fmt):
    tie = 1 + fmt.epsilon / 2
    above = torch.tensor([tie + 2.0**-40], dtype=torch.float64)  # float32 would make a tie of it, which goes down
    assert round_to_nearest_even(above, fmt).item() == (1 + fmt.epsilon)
    assert same_bits(
        round_to_nearest_even(torch.tensor([0.1]).bfloat16(), FP32), torch.tensor([0.1]).bfloat16().float()
    )


def test_shape_device_and_gradient():
    x = torch.randn(2, 3, requires_grad=True)
    y = round_to_nearest_even(x, FP16)
    assert y.shape == x.shape and not y.requires_grad
    assert round_to_nearest_even(torch.empty(0), FP16).shape == (0,)
    assert round_stochastically(torch.tensor(1.0), FP16).shape == ()


@pytest.mark.parametrize("function", [round_to_nearest_even, round_stochastically])
def test_integers_are_refused(function):
    with pytest.raises(ValueError, match=r"only floating-point tensors can be rounded to fp16; got torch.int64"):
        function(torch.arange(3), FP16)


@pytest.mark.parametrize("fmt", SMALL, ids=lambda fmt: fmt.name)
def test_by_chance_a_number_of_the_format_never_moves(fmt):
    numbers = torch.cat([numbers_of(fmt), torch.tensor([-0.0, torch.inf, -torch.inf, torch.nan])])
    if not fmt.has_infinity:
        numbers = numbers[~numbers.isinf()]
    for seed in range(5):
        assert same_bits(round_stochastically(numbers, fmt, torch.Generator().manual_seed(seed)), numbers)


def mean_is_x(round_once, fmt, x, count=200_000):
    """Whether the mean of many roundings is x, within five standard deviations."""
    results = round_once(torch.full((count,), x), fmt, torch.Generator().manual_seed(0)).double()
    values = results.unique()
    assert len(values) == 2 and values[0] < x < values[1]
    exact = torch.tensor(x).double()
    chance = (exact - values[0]) / (values[1] - values[0])
    deviation = (values[1] - values[0]) * (chance * (1 - chance) / count).sqrt()
    return bool((results.mean() - exact).abs() < 5 * deviation)


CASES = [(BF16, 1.001), (BF16, -3.3), (FP16, 1e-7), (FP16, -0.1), (FP8_E4M3, 0.001), (FP8_E5M2, -7.3), (TF32, 0.3)]


@pytest.mark.parametrize(("fmt", "x"), CASES)
def test_by_chance_the_mean_is_right(fmt, x):
    assert mean_is_x(round_stochastically, fmt, x)


def test_a_rounding_with_a_bias_is_noticed():
    def biased(x, fmt, generator):
        return round_stochastically(x * (1 + fmt.epsilon / 50), fmt, generator)

    assert not mean_is_x(biased, BF16, 1.003)


def test_by_chance_the_neighbours_are_torch_s_numbers():
    x = random_patterns(100_000, 3)
    x = x[x.isfinite()]
    y = round_stochastically(x, FP16, torch.Generator().manual_seed(0))
    assert same_bits(cast(y, FP16), y)
    nearest = round_to_nearest_even(x, FP16)
    inside = x.abs() <= FP16.largest
    step = torch.maximum(x.abs() * FP16.epsilon, torch.tensor(FP16.smallest_subnormal))
    assert ((y - x).abs() < step)[inside].all() and ((nearest - x).abs() <= step / 2)[inside].all()
    assert (y.signbit() == x.signbit()).all()


def test_generators_make_the_chance_repeatable():
    x = torch.randn(100)
    first, second, other = (round_stochastically(x, BF16, torch.Generator().manual_seed(s)) for s in (0, 0, 1))
    assert first.equal(second) and not first.equal(other)


def test_truncation_in_place_of_rounding_is_noticed(monkeypatch):
    monkeypatch.setattr(rounding.torch.Tensor, "round", lambda x: x.trunc())
    assert not agrees(edge_cases(BF16), BF16)
