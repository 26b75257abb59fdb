"""ch05.packed_signs: whole bytes of one chunk first; then zeros, a byte that is not full, chunks, nothing."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP

# Per case: `chunk`; the size of x, `n`; `first`, some of its elements; and whether other calls come `between`.
CASES: dict[str, dict[str, Any]] = {
    "one chunk of whole bytes": {"n": 16, "chunk": 16},
    "a zero": {"says": "0 counts as positive: its bit is 1", "n": 8, "chunk": 8, "first": [0.0]},
    "a negative zero": {
        "says": "-0.0 is 0, and counts as positive: its bit is 1",
        "n": 8,
        "chunk": 8,
        "first": [-1.0, -0.0],
    },
    "a byte that is not full": {
        "says": "n need not be a multiple of 8: the last byte is filled up with 0, and n elements are unpacked",
        "n": 11,
        "chunk": 16,
    },
    "several chunks": {
        "says": "each chunk has a scale of its own, and each of its elements gets that",
        "n": 32,
        "chunk": 16,
    },
    "a short last chunk": {
        "says": "the last chunk may be shorter: its scale is the mean of the elements that it has",
        "n": 21,
        "chunk": 8,
    },
    "a chunk of zeros": {"says": "the scale of a chunk of zeros is 0", "n": 8, "chunk": 8, "first": [0.0] * 8},
    "many bytes": {"says": "n may be any number, here 100: so many bits no whole number has", "n": 100, "chunk": 40},
    "calls of others between": {
        "says": "nothing of another call counts: `chunk` is that of this codec, n is what `unpack` is given, and what "
        "was returned stays as it is",
        "n": 11,
        "chunk": 8,
        "between": True,
    },
    "no elements": {"says": "n may be 0: there are no bytes and no scales then", "n": 0, "chunk": 8},
}
POSITIVE, PADDED, SHIFT = "(x >= 0)", "(0, -len(x) % 8)", "signs << torch.arange(8, device=x.device)"
SCALE, ABSOLUTE = "part.mean() for part in parts", "x.abs().split(chunk) if"
BACK, SIGNS = "bits[:, None] >> torch.arange(8, device=bits.device)", "2 * ones.int().flatten()[:n] - 1"
VALUES, PACK = "scales.repeat_interleave(chunk)[:n]", "def pack(x"
EDITS = (
    Edit("the first element of each eight is in the highest bit of its byte: it belongs in the lowest, worth 1",
         {SHIFT: "signs << torch.arange(8, device=x.device).flip(0)",
          BACK: "bits[:, None] >> torch.arange(8, device=bits.device).flip(0)"}),
    Edit("pack puts the first element of each eight into the highest bit of its byte: it belongs in the lowest, worth "
         "1", {SHIFT: "signs << torch.arange(8, device=x.device).flip(0)"}),
    Edit("unpack takes the first element of each eight from the highest bit of its byte: it is in the lowest, worth 1",
         {BACK: "bits[:, None] >> torch.arange(8, device=bits.device).flip(0)"}),
    Edit("elements are spread over the bytes, each byte has every so many-th: eight elements in a row share a byte",
         {"-len(x) % 8)).view(-1, 8)": "-len(x) % 8)).view(8, -1).T"}),
    Edit("the bit of a positive element is 0, and that of a negative one 1: it is the other way round",
         {POSITIVE: "(x < 0)", SIGNS: "1 - 2 * ones.int().flatten()[:n]"}),
    Edit("pack makes the bit of a positive element 0, and that of a negative one 1: it is the other way round",
         {POSITIVE: "(x < 0)"}),
    Edit("unpack makes elements with the bit 1 negative, and those with 0 positive: it is the other way round",
         {SIGNS: "1 - 2 * ones.int().flatten()[:n]"}),
    Edit("nothing is packed: each sign takes a byte of its own",
         {"bits = (signs << torch.arange(8, device=x.device)).sum(1)": "bits = signs.flatten()"}),
    Edit("each bit counts 1 in its byte, so that the byte has how many elements are positive: bit i is worth 2^i",
         {SHIFT: "signs"}),
    Edit("the bytes are uint8, and the sums are another dtype: return `bits` as torch.uint8",
         {"bits.to(torch.uint8),": "bits,"}),
    Edit("an element whose bit is 0 becomes 0: it is minus the scale", {SIGNS: "ones.int().flatten()[:n]"}),
    Edit("an element whose bit is 0 becomes 255 times its scale: 2 * 0 - 1 is 255 in uint8, which has no negative "
         "numbers", {SIGNS: "2 * ones.to(torch.uint8).flatten()[:n] - 1"}),
    Edit("the scale is missing in what is unpacked: it is all 1 and -1", {f"signs * {VALUES}": "signs.float()"}),
    Edit("the scale is the mean of the elements, in which positive and negative ones cancel: take their magnitudes",
         {ABSOLUTE: "x.split(chunk) if"}),
    Edit("the scale is the largest magnitude of the chunk: it is the mean",
         {SCALE: "part.max() for part in parts"}),
    Edit("the scale is the sum of the chunk's magnitudes: it is their mean", {SCALE: "part.sum() for part in parts"}),
    Edit("the scale is the root of the mean square: it is the mean of the magnitudes",
         {SCALE: "part.square().mean().sqrt() for part in parts"}),
    Edit("the scale is the norm of the chunk: it is the mean of the magnitudes",
         {SCALE: "part.norm() for part in parts"}),
    Edit("the scale is the median of the magnitudes: it is their mean", {SCALE: "part.median() for part in parts"}),
    Edit("the bit of 0 is 0, so that it becomes negative: 0 counts as positive, its bit is 1", {POSITIVE: "(x > 0)"}),
    Edit("the bit of -0.0 is 0, as its sign bit says: it is 0, and counts as positive",
         {POSITIVE: "(~x.signbit())"}),
    Edit("the last byte is filled up with 1: fill it up with 0",
         {"(0, -len(x) % 8)).view": "(0, -len(x) % 8), value=1).view"}),
    Edit("8 - n % 8 elements are filled up, a whole byte where n is a multiple of 8: -n % 8 is 0 there",
         {PADDED: "(0, 8 - len(x) % 8)"}),
    Edit("the last byte is filled up from below: the padding belongs behind the elements, in the highest bits",
         {PADDED: "(-len(x) % 8, 0)"}),
    Edit("what fills up the last byte is unpacked, too: the vector has n elements",
         {SIGNS: "2 * ones.int().flatten() - 1",
          VALUES: "torch.cat([scales.repeat_interleave(chunk)[:n], scales[-1:].expand(-n % 8)])"}),
    Edit("all elements have one scale, the mean over x: each chunk has its own",
         {SCALE: "x.abs().mean() for part in parts"}),
    Edit("the scales are handed out in turn, one element each: all elements of a chunk get the scale of the chunk",
         {VALUES: "scales.repeat(chunk)[:n]"}),
    Edit("all elements are unpacked with the first scale: each chunk has its own", {VALUES: "scales[:1].expand(n)"}),
    Edit("the magnitudes of a short last chunk are divided by `chunk`: divide by the number of its elements",
         {SCALE: "part.sum() / chunk for part in parts"}),
    Edit("the short last chunk has no scale: there are ceil(n / chunk) of them",
         {"len(x) else ()": "len(x) else ()\n        parts = [p for p in parts if len(p) == chunk or len(x) < chunk]",
          VALUES: "torch.cat([scales, scales[-1:]]).repeat_interleave(chunk)[:n]"}),
    Edit("scales are rounded to 16 bits, as float16 has them: they are float32",
         {"torch.stack(scales) if": "torch.stack(scales).half().float() if"}),
    Edit("a scale is never smaller than some number: that of a chunk of zeros is 0",
         {SCALE: "part.mean().clamp(min=1e-3) for part in parts"}),
    Edit("a chunk is divided by its largest magnitude, and for a chunk of zeros 0 / 0 is NaN: its scale is 0",
         {SCALE: "(part / part.max()).mean() * part.max() for part in parts"}),
    Edit("all codecs have one `chunk`, that of the last one that was made: each has its own",
         {PACK: f"packed_signs.chunk = chunk\n\n    {PACK}", "split(chunk) if": "split(packed_signs.chunk) if",
          VALUES: "scales.repeat_interleave(packed_signs.chunk)[:n]"}),
    Edit("unpack returns as many elements as the last pack was given: it is told n",
         {"signs = functional": "pack.n = len(x)\n        signs = functional",
          "ones = (": "n = pack.n\n        ones = ("}),
    Edit("a later call of pack changes what an earlier one returned: return new tensors",
         {"return bits.to(torch.uint8),": "kept = vars(pack).setdefault(len(x), bits.to(torch.uint8))\n        "
          "return kept.copy_(bits),"}),
    Edit("a later call of unpack changes what an earlier one returned: return a new tensor",
         {"return signs * ": "kept = vars(unpack).setdefault(n, torch.empty(n))\n        "
          "return kept.copy_(signs * ", VALUES: f"{VALUES})"}),
    Edit("of no elements there is a scale, and it is NaN, the mean of nothing: there are ceil(0 / chunk) = 0 of them",
         {"if len(x) else ()": ""}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    """The vector x, and for `unpack` bits and scales that are not those of x."""
    g, n, chunk = case.generator(), case.params["n"], case.params["chunk"]
    signs = torch.randint(2, (n,), generator=g) * 2 - 1
    signs[:3] = torch.tensor([1, 1, -1])[:n]  # no byte reads the same from behind, or has one sign only
    signs[5:8] = torch.tensor([-1, -1, 1])[: max(0, n - 5)]
    x = (0.1 + torch.rand(n, generator=g)) * signs / 4 * (1 + torch.arange(n) // chunk)
    first = torch.tensor(case.params.get("first", []))
    x[: len(first)] = first
    bits = torch.randint(1, 8, (-(-n // 8),), generator=g) * 16 + 5  # of each byte bit 0 is 1, bit 7 is 0
    if n % 8:
        bits[-1] %= 1 << n % 8
    scales = torch.arange(2.0, 2 + -(-n // chunk)) + torch.rand(-(-n // chunk), generator=g) / 2
    given = {"chunk": chunk, "x": x, "bits": bits.to(torch.uint8), "scales": scales}
    return [{**given, "between": "between" in case.params} for _ in range(case.world_size)]


def on_rank(answer: Any, chunk: Any, x: Any, bits: Any, scales: Any, between: Any) -> Any:
    pair = answer(chunk)
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(map(callable, pair)):
        return {"it returns two functions": False}
    packed = pair[0](x)
    if not isinstance(packed, tuple | list) or len(packed) != 2:
        return {"it returns two functions": True, "pack returns bits and scales": False}
    if between:
        for vector in (-2 * x, x[:3]):
            pair[0](vector)
            answer(2 * chunk)[0](vector)
    unpacked = pair[1](bits, scales, len(x))
    if between:
        pair[1](bits, scales + 1, len(x))
    facts = {"it returns two functions": True, "pack returns bits and scales": True}
    return facts | {"bits": packed[0], "scales": packed[1], "unpacked": unpacked}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """The results by Python's whole numbers, one element after the other."""
    own, chunk = given[0], given[0]["chunk"]
    x, n = own["x"].tolist(), len(own["x"])
    parts = [x[at : at + chunk] for at in range(0, n, chunk)]
    ones = [own["bits"][i // 8].item() >> (i % 8) & 1 for i in range(n)]
    bits = [sum((x[i] >= 0) << (i - at) for i in range(at, min(at + 8, n))) for at in range(0, n, 8)]
    facts: dict[str, Any] = {"it returns two functions": True, "pack returns bits and scales": True}
    facts["bits"] = torch.tensor(bits, dtype=torch.uint8)
    facts["scales"] = torch.tensor([sum(map(abs, part)) / len(part) for part in parts])
    facts["unpacked"] = torch.tensor([(2 * one - 1) * own["scales"][i // chunk].item() for i, one in enumerate(ones)])
    return [facts for _ in given]


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}{case.says}" if case.says else ""


def example() -> Given:
    x, scales = torch.tensor([1.0, -3, 0, 2, -2, -4, 1, 3, -5, 7]), torch.tensor([2.0, 6])
    bits = torch.tensor([205, 2], dtype=torch.uint8)
    return [{"chunk": 8, "x": x, "bits": bits, "scales": scales, "between": False}]


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=example(),
    rules=[rules.most_messages("0")],
    why=why,
)
