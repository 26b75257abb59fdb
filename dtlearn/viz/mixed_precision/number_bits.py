"""One number in several formats: its bits as boxes, what they stand for, and how far that is from the number."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from ..style import ALARM, INK, MUTED, headline, legend_below, new_figure, style

if TYPE_CHECKING:
    from dtlearn.mixed_precision.formats import Format

# Face and hatch of the three fields: they differ in grey, too.
_FIELDS = {"sign": ("#f2d3c9", "///"), "exponent": ("#cfe3f1", ""), "mantissa": ("#e2f0da", "...")}
_BOX = 0.8  # of a row's height
_CAN_BE_TYPED = "Type one such as 0.1, -3e-5, 65504, 2^-24, 0x1.8p-3, inf or nan."
_TEXT_AT = 33  # where the value stands: behind the 32 bits of fp32


def number_bits(value: float, formats: Sequence[Format], title: str = "") -> Figure:
    """Draw the bits of the nearest number of each format, and what it is.

    Args:
        value: the number.
        formats: one row each.
        title: what the figure is about; default: the number.

    Raises:
        ValueError: no formats.
    """
    if not formats:
        raise ValueError("number_bits needs one format or more, such as list(FORMATS.values())")
    with style():
        fig = new_figure(height=1.2 + 0.46 * len(formats))
        ax = fig.add_subplot()
        for row, fmt in enumerate(formats):
            _row(ax, row, fmt, value)
        ax.set_yticks(range(len(formats)), [fmt.name for fmt in formats])
        ax.tick_params(length=0)
        ax.set_xticks([])
        ax.set_xlim(-0.2, _TEXT_AT + 17)
        ax.set_ylim(len(formats) - 0.4, -0.6)
        for side in ("left", "bottom"):
            ax.spines[side].set_visible(False)
        headline(
            ax, title or f"{value:.10g} in {len(formats)} formats", "right: the number that is held, and its error"
        )
        handles = [
            Patch(fc=color, ec=MUTED, hatch=hatch, lw=0.5, label=name) for name, (color, hatch) in _FIELDS.items()
        ]
        legend_below(fig, handles)
    return fig


def typed_number(text: str) -> float:
    """The number that a person typed, as a double: 0.1, -3e-5, 65,504, 2^-24, 0x1.8p-3 (hexadecimal), inf or nan.

    Raises:
        ValueError: the text is no number, or one that a double cannot hold; says what can be typed.
    """
    plain = text.strip().lower().replace("\u2212", "-")  # the minus sign that texts are printed with
    if re.fullmatch(r"[-+]?\d{1,3}(,\d{3})+(\.\d*)?", plain):
        plain = plain.replace(",", "")
    power = re.fullmatch(r"([-+]?)2(?:\^|\*\*)([-+]?\d{1,6})", plain)
    try:
        if power:
            value = math.copysign(math.ldexp(1.0, int(power[2])), -1 if power[1] == "-" else 1)
        else:
            value = float.fromhex(plain) if "0x" in plain else float(plain)
    except OverflowError:
        value = math.inf
    except ValueError:
        decimal = "; write a decimal point, not a comma" if "," in plain else ""
        raise ValueError(f"this is not a number{decimal}. {_CAN_BE_TYPED}") from None
    if math.isinf(value) and "inf" not in plain:
        raise ValueError(f"it is too large: this figure computes in float64, which ends at 1.8e308. {_CAN_BE_TYPED}")
    if value == 0 and (power or re.search("[1-9a-f]", re.split("p" if "0x" in plain else "e", plain)[0])):
        raise ValueError("it is too small: this figure computes in float64, whose smallest number is 4.9e-324.")
    return value


def held_words(value: float, fmt: Format) -> str:
    """Return what a format makes of a number, in words: "0.09998, off by 0.024 %"."""
    held = fmt.round(value)
    if math.isnan(held):
        return "NaN" if math.isnan(value) else "NaN: no infinity" if math.isinf(value) else "NaN: too large"
    if math.isinf(held):
        return ("-" if held < 0 else "") + ("infinity" if math.isinf(value) else "infinity: too large")
    if held == value:
        return f"{held:.9g}, exactly"
    if held == 0:
        return "0: too small, all is lost"
    digits = 9 if fmt.mantissa_bits > 12 else 6
    subnormal = ", subnormal" if abs(held) < fmt.smallest_normal else ""
    return f"{held:.{digits}g}, off by {100 * abs(held - value) / abs(value):.2g} %{subnormal}"


def _row(ax: Axes, row: int, fmt: Format, value: float) -> None:
    bits, at = fmt.bits(value), 0
    for field, (color, hatch) in _FIELDS.items():
        for bit in getattr(bits, field):
            box = Rectangle((at, row - _BOX / 2), 1, _BOX, fc=color, ec=MUTED, hatch=hatch, lw=0.5, alpha=0.9)
            ax.add_patch(box)
            plain = {"boxstyle": "square,pad=0.05", "fc": color, "ec": "none"}
            ax.text(at + 0.5, row, bit, ha="center", va="center", size=9, color=INK, bbox=plain)
            at += 1
    held = fmt.round(value)
    lost = not math.isnan(value) and held != value and (held == 0 or not math.isfinite(held))
    ax.text(_TEXT_AT, row, held_words(value, fmt), va="center", size=9, color=ALARM if lost else INK)
