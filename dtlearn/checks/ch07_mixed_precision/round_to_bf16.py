"""ch07.round_to_bf16: numbers of one kind in each case, beside what torch's cast makes of them, bit by bit."""

from __future__ import annotations

import ast
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from .. import MAY_HELP
from ..own_work import find_forbidden

SHAPE = "what is returned has the shape of x, whatever that is"
# Per case: `bits`, those of the positive numbers, whose negatives are added; or `low`, the last 16 bits, after
# random ones; `shape`, of x.
CASES: dict[str, dict[str, Any]] = {
    "ordinary numbers": {"low": [0x7FFF, 0x8001, 0x0001, 0xFFFF, 0x4000, 0xC123, 0]},
    "halfway between two": {
        "says": "of two that are equally near it is the one whose last kept bit is 0, the even one",
        "low": [0x8000],
    },
    "up to the next power of two": {
        "says": "where all mantissa bits are 1 the carry goes on into the exponent",
        "bits": [0x3FFF8000, 0x3FFFFFFF, 0x407FC000],
    },
    "zeros": {"says": "a zero keeps its sign", "bits": [0]},
    "subnormal numbers": {
        "says": "subnormal numbers are rounded like all others",
        "bits": [1, 0x8000, 0x8001, 0x17FFF, 0x18000, 0x7F7FFF, 0x7F8000, 0x7FFFFF, 0x800000],
    },
    "infinity": {"says": "infinity stays infinity, with its sign", "bits": [0x7F800000]},
    "beyond the largest": {
        "says": "what is rounded beyond the largest bfloat16 number is infinity, with its sign",
        "bits": [0x7F7E8000, 0x7F7F0000, 0x7F7F7FFF, 0x7F7F8000, 0x7F7FFFFF],
    },
    "NaN": {
        "says": "NaN stays NaN, whatever its bits are",
        "bits": [0x7F800001, 0x7F80FFFF, 0x7FC00000, 0x7FFF8000, 0x7FFFFFFF],
    },
    "a matrix": {"says": SHAPE, "low": [0x7FFF, 0x8001], "shape": (2, 3)},
    "a transposed matrix": {"says": SHAPE, "low": [0x7FFF, 0x8001], "shape": (3, 2), "transposed": True},
    "a number without dimensions": {"says": SHAPE, "low": [0x7FFF, 0x8001], "shape": ()},
    "no numbers at all": {"says": "x may have no elements", "low": [0x7FFF], "shape": (0,)},
}
BITS, ROUNDED = "bits = x.view(torch.int32)", "(bits + 0x7FFF + last_kept) & -0x10000"
RETURNED = "torch.where(x.isnan(), x, rounded.view(torch.float32))"
TIES = "only the ties are wrong; they {}, and should go to the even one: 1.00390625 (3f808000) becomes 1.0, and "
TIES += "1.01171875 (3f818000) becomes 1.015625"
CONVERTED = (
    "the numbers were converted to whole numbers, `x.to(torch.int32)` or `x.int()`; `x.view(torch.int32)` has the "
)
CONVERTED += "same bits"
EDITS = (
    Edit("a tensor of type bfloat16 was made, which does the rounding: the exercise is to do it on the bits",
         {RETURNED: 'x.to(getattr(torch, "bf" + "loat16")).to(x.dtype)'}),
    Edit("what is returned is x itself: return a new tensor of rounded numbers", {RETURNED: "x"}),
    Edit("nothing is rounded: the last 16 bits are as they were", {RETURNED: "x.clone()"}),
    Edit("the result is int32, bits that are read as whole numbers; `.view(torch.float32)` reads them as float32",
         {RETURNED: "rounded"}),
    Edit(CONVERTED, {BITS: "bits = x.to(torch.int32)"}),
    Edit(CONVERTED, {BITS: "bits = x.to(torch.int32)", RETURNED: RETURNED.replace("view", "to")}),
    Edit("the last 16 bits are cut off: that rounds towards zero, also where the next number is nearer",
         {ROUNDED: "bits & -0x10000"}),
    Edit("every number goes to the one farther from zero, also where the nearer one is before it",
         {ROUNDED: "(bits + 0xFFFF) & -0x10000"}),
    Edit("rounded to 8 bits of mantissa: bfloat16 keeps 7, the leading 1 is not stored",
         {ROUNDED: "(bits + 0x3FFF + ((bits >> 15) & 1)) & -0x8000"}),
    Edit("rounded to 6 bits of mantissa: bfloat16 keeps 7 of the 23, and 16 are dropped",
         {ROUNDED: "(bits + 0xFFFF + ((bits >> 17) & 1)) & -0x20000"}),
    Edit("these are float16 numbers: bfloat16 has the exponent of float32, and 7 bits of mantissa",
         {RETURNED: "x.half().float()"}),
    Edit(TIES.format("always go away from zero"), {ROUNDED: "(bits + 0x8000) & -0x10000"}),
    Edit(TIES.format("always go towards zero"), {ROUNDED: "(bits + 0x7FFF) & -0x10000"}),
    Edit(TIES.format("go to the odd neighbour"), {ROUNDED: "(bits + 0x8000 - last_kept) & -0x10000"}),
    Edit("a zero lost its sign: -0, and what is rounded to it, stays -0", {RETURNED: f"{RETURNED} + 0.0"}),
    Edit("subnormal numbers became 0: they are rounded like all others",
         {RETURNED: RETURNED.replace("x, r", "x, torch.where(x.abs() < 2**-126, 0 * x, r").replace("2))", "2)))")}),
    Edit("the carry into the exponent is lost: 1.9999 (3fffffff) becomes 2.0 (40000000), whose exponent is one more",
         {ROUNDED: f"(bits & -0x800000) | ({ROUNDED} & 0x7F0000)"}),
    Edit("infinity became the largest number: it stays, and what is rounded beyond the largest is infinity, too",
         {RETURNED: f"{RETURNED}.clamp(-3.3895313892515355e38, 3.3895313892515355e38)"}),
    Edit("what is rounded beyond the largest bfloat16 number is infinity, and not the largest number",
         {RETURNED: f"torch.where(x.isfinite(), {RETURNED}.clamp(-3.3895313892515355e38, 3.3895313892515355e38), x)"}),
    Edit("NaN became a number or infinity: its bits are rounded like all others, and the 1 among the last 16 is cut "
         "off, or a carry runs through the exponent into the sign", {RETURNED: "rounded.view(torch.float32)"}),
    Edit("the shape is lost: a vector is returned for a matrix", {RETURNED: f"{RETURNED}.flatten()"}),
    Edit("a number without dimensions became a vector of one element: its shape is ()",
         {RETURNED: f"torch.atleast_1d({RETURNED})"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p, given = case.params, []
    for rank in range(case.world_size):
        g = case.generator(rank)
        if "bits" in p:
            bits = torch.tensor([bits + sign for bits in p["bits"] for sign in (0, 1 << 31)])
            bits = bits[torch.randperm(len(bits), generator=g)]
        else:
            shape, low = p.get("shape", (60,)), torch.tensor(p["low"])
            kept = torch.randint(0x3000, 0x5000, shape, generator=g) + 0x8000 * torch.randint(2, shape, generator=g)
            kept &= ~2  # so its mantissa is not all ones, and no carry goes on into the exponent
            bits = (kept << 16) + low[torch.randint(len(low), shape, generator=g)]
        given.append({"x": bits.to(torch.int32).view(torch.float32), "transposed": "transposed" in p})
    return given


def on_rank(answer: Any, x: Any, transposed: Any = False) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Watch(TorchDispatchMode):
        """Notes whether a tensor has the type that the exercise rules out."""

        seen = False

        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = op(*args, **(kwargs or {}))
            tensors = tree_leaves((made, args, kwargs))  # also of lists, which the _foreach_ operations have
            Watch.seen |= any(getattr(t, "dtype", None) == torch.bfloat16 for t in tensors)
            return made

    def pairs(tensor: Any) -> Any:
        """The elements as pairs: a number, and its bits as a text."""
        bits = tensor.contiguous().view(torch.int32).flatten().tolist()
        return zip(tensor.flatten().tolist(), [f"{one & 0xFFFFFFFF:08x}" for one in bits], strict=True)

    x = x.mT if transposed else x
    with Watch():
        made = answer(x)
    facts = {"a bfloat16 tensor was made": Watch.seen, "type": type(made).__name__, "dtype": None, "shape": None}
    facts |= {"shares memory with x": False, "numbers": None}
    if isinstance(made, torch.Tensor):
        facts |= {"dtype": str(made.dtype), "shape": list(made.shape)}
        facts["shares memory with x"] = bool(made.numel()) and made.data_ptr() == x.data_ptr()
        if made.dtype == torch.float32 and made.shape == x.shape:
            both = zip(pairs(x), pairs(made), strict=True)
            facts["numbers"] = {f"{a:.9g} ({b})": "NaN" if c != c else f"{c:.9g} ({d})" for (a, b), (c, d) in both}
    return facts


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """Return what torch's cast makes of them."""
    results = [on_rank(lambda x: x.bfloat16().float(), **own) for own in given]
    return [{**facts, "a bfloat16 tensor was made": False} for facts in results]


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised."""
    return f"{MAY_HELP}x may have any shape, and strides: this is {case.name}" if "shape" in case.params else ""


def without_the_type(source: str) -> Finding | None:
    """A rule on the text: the type bfloat16 is taken from nowhere. What the answer calls by that name is its own."""
    tree = ast.parse(source)
    imported = {(a.asname or a.name).partition(".")[0] for a in ast.walk(tree) if isinstance(a, ast.alias)}
    for node in ast.walk(tree):
        for word in _words(node, imported):
            if word.lower().removeprefix("torch.") in ("bfloat16", "bfloat16tensor"):
                line = getattr(node, "lineno", 0)
                text = f"line {line} uses {word}, which does the rounding: the exercise is to do it on the bits"
                return Finding("DTL-RULE-NAME", text, line=line)
    return find_forbidden(
        source, dict.fromkeys(_WAYS_TO_IT, "it leads to bfloat16, or hides it: the exercise is to work on the bits")
    )


def _words(node: ast.AST, imported: set[str]) -> list[str]:
    """Names that something is taken by: from x import NAME, torch.NAME, x.NAME(), getattr(x, NAME), x.to(NAME)."""
    if isinstance(node, ast.alias):
        return [node.name]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imported:
        return [node.attr]
    if not isinstance(node, ast.Call):
        return []
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    texts = [*node.args, *(keyword.value for keyword in node.keywords)]
    values = [text.value for text in texts if isinstance(text, ast.Constant) and isinstance(text.value, str)]
    return [name, *(values if name in ("getattr", "to", "type", "astype", "dtype") else [])]


# Where the default type of autocast is found, or the watch of `on_rank` is ended; and the type in numpy.
_WAYS_TO_IT = [
    "torch.get_autocast_dtype",
    "torch.get_autocast_cpu_dtype",
    "torch.get_autocast_gpu_dtype",
    "torch.utils._python_dispatch",
    "torch.utils._mode_utils",
    "torch._C",
    "ml_dtypes",
    *("_thread", "threading", "concurrent", "asyncio"),  # the watch is of one thread
]
EXAMPLE = torch.tensor([1.001953125, 1.005859375, 1.00390625, 1.01171875])
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"x": EXAMPLE}],
    why=why,
    reads=[without_the_type],
    rules=[rules.most_messages("0")],
)
