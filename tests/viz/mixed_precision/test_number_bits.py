import math

import pytest

from dtlearn.mixed_precision.formats import BF16, FORMATS, FP8_E4M3, FP16, FP32
from dtlearn.viz.mixed_precision.number_bits import held_words, number_bits, typed_number


def texts(fig):
    return [text.get_text() for text in fig.axes[0].texts]


def test_every_bit_is_a_box_and_the_boxes_are_the_number():
    fig = number_bits(0.1, [FP16, BF16])
    bits = "".join(text for text in texts(fig) if text in "01")
    assert FP16.decode(bits[:16]) == FP16.round(0.1) and BF16.decode(bits[16:32]) == BF16.round(0.1)
    assert len(fig.axes[0].patches) == 32
    assert [tick.get_text() for tick in fig.axes[0].get_yticklabels()] == ["fp16", "bf16"]
    assert "0.1 in 2 formats" in fig.axes[0].get_title(loc="left")
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["sign", "exponent", "mantissa"]


@pytest.mark.parametrize(
    ("value", "fmt", "says"),
    [
        (1.0, FP16, "1, exactly"),
        (0.1, FP16, "0.0999756, off by 0.024 %"),
        (70000.0, FP16, "infinity: too large"),
        (-70000.0, FP16, "-infinity: too large"),
        (float("inf"), FP16, "infinity"),
        (500.0, FP8_E4M3, "NaN: too large"),
        (float("-inf"), FP8_E4M3, "NaN: no infinity"),
        (float("nan"), FP16, "NaN"),
        (1e-8, FP16, "0: too small, all is lost"),
        (1e-6, FP16, "1.01328e-06, off by 1.3 %, subnormal"),
        (1 / 3, FP32, "0.333333343, off by 3e-06 %"),
    ],
)
def test_what_a_format_makes_of_a_number_is_said(value, fmt, says):
    assert held_words(value, fmt) == says


def test_all_formats_fit_and_none_is_refused():
    assert len(number_bits(3e-8, list(FORMATS.values()), title="small").axes[0].get_yticklabels()) == len(FORMATS)
    with pytest.raises(ValueError, match="one format or more"):
        number_bits(1.0, [])


def test_only_what_is_lost_is_red():
    def colour(value, fmt):
        words = held_words(value, fmt)
        return next(text.get_color() for text in number_bits(value, [fmt]).axes[0].texts if text.get_text() == words)

    plain, red = colour(1.0, FP16), colour(1e9, FP16)
    assert plain != red
    assert colour(math.inf, FP16) == colour(math.nan, FP16) == colour(0.0, FP16) == plain
    assert colour(math.inf, FP8_E4M3) == colour(1e-9, FP16) == red


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" 0.1 ", 0.1),
        ("-3E-5", -3e-5),
        ("65,504", 65504.0),
        ("-1,234,567.5", -1234567.5),
        ("\N{MINUS SIGN}2", -2.0),
        ("2^-24", 2.0**-24),
        ("-2**10", -1024.0),
        ("0x1.8p-3", 0.1875),
        ("-0X1P4", -16.0),
        ("inf", math.inf),
        ("-Infinity", -math.inf),
        ("0e5", 0.0),
        ("5e-324", 5e-324),
    ],
)
def test_a_typed_number_is_read(text, value):
    assert typed_number(text) == value


def test_nan_and_minus_zero_are_read():
    assert math.isnan(typed_number("NaN"))
    assert math.copysign(1, typed_number("-0")) == -1


@pytest.mark.parametrize("text", ["", "abc", "1/3", "0x", "0x1.8q", "1,2,3", "2^x", "--1", "1e", "2^1e3"])
def test_what_is_no_number_is_answered_with_what_can_be_typed(text):
    with pytest.raises(ValueError, match=r"not a number.* Type one such as 0\.1"):
        typed_number(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0,1", "write a decimal point, not a comma"),
        ("1e999", "too large"),
        ("-2^5000", "too large"),
        ("0x1p5000", "too large"),
        ("1e-999", "too small"),
        ("2^-5000", "too small"),
        ("0x1p-5000", "too small"),
    ],
)
def test_a_number_that_cannot_be_shown_says_why(text, says):
    with pytest.raises(ValueError, match=says):
        typed_number(text)
