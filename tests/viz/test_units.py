import pytest

from dtlearn.viz.units import format_bytes, format_quantity, format_ratio, format_seconds, parse_quantity


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (37_672, "37.7 kB"), (8_388_608, "8.39 MB"), (7e12, "7 TB")],
)
def test_bytes_get_the_prefix_that_fits(nbytes, text):
    assert format_bytes(nbytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (35e-6, "35 us"), (0.001237, "1.24 ms"), (3.1, "3.1 s"), (302, "5 min 2 s"), (2e-9, "2 ns")],
)
def test_seconds_get_the_prefix_that_fits(seconds, text):
    assert format_seconds(seconds) == text


def test_ratio():
    assert [format_ratio(r) for r in (2, 0.25, 1024)] == ["2x", "0.25x", "1,024x"]


def test_quantity_keeps_small_byte_counts_exact():
    assert format_quantity(37_672, "bytes") == "37,672 bytes"
    assert format_quantity(8_000_000, "bytes") == "8 MB"
    assert format_quantity(12, "messages") == "12 messages"
    assert format_quantity(0.5) == "0.5"


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("4096", "bytes", 4096),
        ("4,096", "bytes", 4096),
        ("1 000 000", "bytes", 1e6),
        ("4 MiB", "bytes", 4 * 1024**2),
        ("4MB", "bytes", 4e6),
        ("1.5e6", "bytes", 1.5e6),
        ("20 ms", "seconds", 0.02),
        ("3 million", "parameters", 3e6),
        ("12 messages", "messages", 12),
        ("-0.5", "", -0.5),
    ],
)
def test_parse_reads_numbers_as_people_write_them(text, unit, value):
    assert parse_quantity(text, unit) == pytest.approx(value)


@pytest.mark.parametrize(("text", "unit"), [("many", "bytes"), ("", "bytes"), ("4 ms", "bytes"), ("4 MB", "seconds")])
def test_parse_refuses_what_is_no_such_number(text, unit):
    with pytest.raises(ValueError, match="is not a"):
        parse_quantity(text, unit)


def test_parse_does_not_take_a_decimal_comma_for_a_separator():
    with pytest.raises(ValueError, match="Use a point for decimals"):
        parse_quantity("2,5", "bytes")
