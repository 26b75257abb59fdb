"""ch07.format_limits: formats that exist, formats that nobody has built, and formats without infinity."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules

# Bits of exponent and of mantissa, one pair per rank; "random": as many as there are ranks; `left_out`: the answer is
# called without has_infinity.
CASES: dict[str, dict[str, Any]] = {
    "FP16, BF16, FP8 E5M2, and a small one": {"bits": [(5, 10), (8, 7), (5, 2), (3, 1)]},
    "formats that nobody has built": {
        "says": "the numbers follow from the two widths, also of formats that nobody has built",
        "bits": "random",
    },
    "has_infinity is left out": {
        "says": "where has_infinity is left out the format has infinity",
        "bits": [(2, 2), (4, 1), (8, 23), (6, 3)],
        "left_out": True,
    },
    "without infinity": {
        "says": "without infinity the last exponent field has normal numbers too, all but the largest mantissa",
        "bits": [(4, 3), (2, 1), (5, 2), (8, 23)],
        "has_infinity": False,
    },
}
BIAS, LAST = "bias = 2 ** (exponent_bits - 1) - 1", "last_exponent = bias if has_infinity else bias + 1"
UNUSED, LARGEST = "unused = 1 if has_infinity else 2", "largest = (2 - unused * epsilon) * 2.0**last_exponent"
NORMAL, SUBNORMAL = "smallest_normal = 2.0 ** (1 - bias)", '"smallest_subnormal": smallest_normal * epsilon'
EPSILON, RETURNED = '"epsilon": epsilon', '"largest": largest'
TABLE = "{(5, 10), (8, 7), (5, 2), (3, 1), (4, 3), (8, 23)}"
FIELD_0 = "smallest_normal has the exponent field 0, that of the subnormal numbers: the first normal field is 1"
NO_MANTISSA = "largest has no mantissa: it is a power of two, but the largest number has the largest mantissa too"
EDITS = (
    Edit("these are the limits of FP16 whatever the arguments are",
         {BIAS: f"exponent_bits, mantissa_bits, has_infinity = 5, 10, True\n    {BIAS}"}),
    Edit("formats that are not in a table have the limits of FP16: work them out from the two widths",
         {BIAS: f"if (exponent_bits, mantissa_bits) not in {TABLE}:\n        exponent_bits, mantissa_bits = 5, 10\n"
          f"    {BIAS}"}),
    Edit("all four numbers are those of a format with the two widths exchanged: exponent_bits comes first",
         {BIAS: f"exponent_bits, mantissa_bits = min(mantissa_bits, 10), exponent_bits\n    {BIAS}"}),
    Edit("the bias is 2^(E - 1) here, one too many: the smallest numbers are half of what they should be, and the "
         "largest number, if its exponent is b, twice", {BIAS: BIAS.removesuffix(" - 1")}),
    Edit("the bias is 2^(E - 1) here, one too many: largest and smallest numbers are half of what they should be",
         {BIAS: BIAS.removesuffix(" - 1"), LAST: f"{LAST}\n    last_exponent -= 2"}),
    Edit("the bias is 2^E - 1 here; it is 2^(E - 1) - 1", {BIAS: "bias = 2**exponent_bits - 1"}),
    Edit("there is no bias here: e - b with b = 2^(E - 1) - 1",
         {NORMAL: "smallest_normal = 2.0", LAST: f"{LAST}\n    last_exponent += bias"}),
    Edit("epsilon is half of what it should be: the next number after 1 is one step of the mantissa away, 2^-M; half "
         "of that is the largest rounding error", {EPSILON: f"{EPSILON} / 2"}),
    Edit("epsilon is twice what it should be: all M bits are stored, the leading 1 is not among them",
         {EPSILON: f"{EPSILON} * 2"}),
    Edit("epsilon is the smallest positive number here; it is the distance of the numbers near 1",
         {EPSILON: f"{EPSILON} * smallest_normal"}),
    Edit("largest is that of the last exponent field, all bits 1, which is infinity and NaN, and not a number",
         {LAST: "last_exponent = bias + 1"}),
    Edit("has_infinity=False is ignored: the last exponent field, all bits 1, holds numbers here",
         {LAST: "last_exponent = bias", UNUSED: "unused = 1"}),
    Edit("largest is the pattern of all ones, which is NaN without infinity: the mantissa before it is the largest",
         {UNUSED: "unused = 1"}),
    Edit("largest should have one exponent more: without infinity the last exponent field holds numbers too",
         {LAST: "last_exponent = bias"}),
    Edit("largest is that of the same format without infinity; has_infinity is True here",
         {LAST: "last_exponent = bias + 1", UNUSED: "unused = 2"}),
    Edit("largest is that of the same format without infinity; where has_infinity is left out it is True",
         {"has_infinity: bool = True": "has_infinity: bool = False"}),
    Edit(NO_MANTISSA, {LARGEST: "largest = 2.0**last_exponent"}),
    Edit(NO_MANTISSA, {LARGEST: f"{LARGEST} if not has_infinity else 2.0**last_exponent"}),
    Edit("largest is a power of two above the largest number: 1 + m / 2^M is always below 2",
         {LARGEST: "largest = 2.0 ** (last_exponent + 1)"}),
    Edit(FIELD_0, {NORMAL: "smallest_normal = 2.0**-bias"}),
    Edit(FIELD_0, {NORMAL: "smallest_normal = 2.0**-bias", SUBNORMAL: f"{SUBNORMAL} * 2"}),
    Edit("smallest_normal is the smallest number of all here; a normal number has an exponent field of 1 or more",
         {SUBNORMAL: '"smallest_subnormal": smallest_normal * epsilon', '"smallest_normal": smallest_normal':
          '"smallest_normal": smallest_normal * epsilon'}),
    Edit("smallest_subnormal is half of what it should be: subnormal numbers have the exponent 1 - b, not 0 - b",
         {SUBNORMAL: f"{SUBNORMAL} / 2"}),
    Edit("smallest_subnormal is the smallest normal number: with e = 0 there are smaller ones, down to m = 1",
         {SUBNORMAL: '"smallest_subnormal": smallest_normal'}),
    Edit("smallest_subnormal is half of the smallest normal number: m / 2^M goes down to 1 / 2^M",
         {SUBNORMAL: '"smallest_subnormal": smallest_normal / 2'}),
    Edit("smallest_subnormal is 0, which is not positive: take m = 1", {SUBNORMAL: '"smallest_subnormal": 0.0'}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p, bits = case.params, case.params["bits"]
    if bits == "random":
        g = case.generator()
        exponents = torch.randperm(5, generator=g)[: case.world_size] + 3  # 3 to 7, all different
        mantissas = torch.randperm(8, generator=g)[: case.world_size] + 2  # 2 to 9: of no format in a table
        bits = list(zip(exponents.tolist(), mantissas.tolist(), strict=True))
    rest = {} if "left_out" in p else {"has_infinity": p.get("has_infinity", True)}
    return [{"exponent_bits": e, "mantissa_bits": m, **rest} for e, m in bits[: case.world_size]]


def on_rank(answer: Any, exponent_bits: Any, mantissa_bits: Any, **rest: Any) -> Any:
    limits = answer(exponent_bits, mantissa_bits, **rest)
    if not isinstance(limits, dict):
        return limits
    return {key: float(value) if type(value) is int else value for key, value in limits.items()}


def expected(case: Case, given: Given) -> list[dict[str, float]]:
    """The largest number is the last of all patterns, in their order, that is one."""
    results = []
    for own in given:
        e, m, bias = own["exponent_bits"], own["mantissa_bits"], (1 << (own["exponent_bits"] - 1)) - 1
        fields = 2**e - own.get("has_infinity", True)  # with numbers
        patterns = fields * 2**m - (not own.get("has_infinity", True))  # each field has 2^M; all ones are NaN
        field, mantissa = divmod(patterns - 1, 2**m)
        largest = 2.0 ** (field - bias) * (1 + mantissa / 2**m)
        tiny = 2.0 ** (1 - bias)
        results.append(
            {"largest": largest, "smallest_normal": tiny, "smallest_subnormal": tiny / 2**m, "epsilon": 2.0**-m}
        )
    return results


def task_text(case: Case, given: Given, rank: int) -> str:
    return ", ".join(f"{name}={value}" for name, value in given[rank].items())


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"exponent_bits": 2, "mantissa_bits": 2, "has_infinity": True}],
    task_text=task_text,
    rtol=0.0,
    atol=0.0,
    rules=[rules.most_messages("0")],
)
