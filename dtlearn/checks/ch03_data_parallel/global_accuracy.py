"""ch03.global_accuracy: predictions of ranks whose shards end with repeated samples."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from dtlearn.grading import Case, Check, Finding, Given, Mistake, compare, rules
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.words import counted, ranks_text

from ..rounded import rounded

_CLASSES = 3
_MOST_BYTES = 64
# Samples: `per_rank` for each rank, and `more`.
_CASES: dict[str, dict[str, int]] = {
    "N divides n": {"per_rank": 4, "more": 0},
    "N does not divide n": {"per_rank": 3, "more": 1},
    "one sample": {"per_rank": 0, "more": 1},
}

# By rank: how many samples it counts, how many of them are right, and the sum of their losses.
Sums = list[tuple[float, float, float]]


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    samples = case.params["per_rank"] * n + case.params["more"]
    logits = 3 * torch.randn(samples, _CLASSES, generator=g)
    targets = torch.randint(_CLASSES, (samples,), generator=g)
    targets[0] = logits[0].argmax()  # the first repeat is right, and a sample that is right is what the mean has to be
    if samples > 1:  # neither all nor none
        targets[1] = logits[1].argmin()
    places = torch.arange(-(-samples // n) * n) % samples
    return [{"logits": logits[places[r::n]], "targets": targets[places[r::n]], "n": samples} for r in range(n)]


def on_rank(answer: Any, logits: torch.Tensor, targets: torch.Tensor, n: int) -> Any:
    return answer(logits, targets, n)


def _sums(
    given: Given,
    padding: bool = False,
    whole_rounds: bool = False,
    blocks: bool = False,
    softmax: bool = False,
    predicted: bool = False,
    left_out: Sequence[int] | None = None,
) -> Sums:
    """What each rank adds up. `padding`: repeats count too. `whole_rounds`: only as many as every rank has. `blocks`:
    as if each rank had a piece of the data set. `softmax`: the loss of probabilities. `predicted`: that of the
    predicted classes. `left_out`: by rank, how many of its last samples do not count."""
    found = []
    for rank, i in enumerate(given):
        n, size = i["n"], len(given)
        most = len(i["targets"]) if padding else n // size if whole_rounds else len(range(rank, n, size))
        if blocks:
            most = min(len(i["targets"]), max(0, n - rank * len(i["targets"])))
        if left_out:
            most = max(0, len(i["targets"]) - left_out[rank])
        logits, targets = i["logits"][:most].double(), i["targets"][:most]
        logits = logits.softmax(1) if softmax else logits
        right = int((logits.argmax(1) == targets).sum())
        aims = logits.argmax(1) if predicted else targets
        found.append((float(most), float(right), float(cross_entropy(logits, aims, reduction="sum"))))
    return found


def _means(sums: Sums, count: float) -> dict[str, float]:
    return {"accuracy": _ratio(sum(s[1] for s in sums), count), "loss": _ratio(sum(s[2] for s in sums), count)}


def _mean_of_means(sums: Sums) -> dict[str, float]:
    means = [_means([s], s[0]) for s in sums]
    return {k: sum(m[k] for m in means) / len(means) for k in ("accuracy", "loss")}


def _ratio(a: float, b: float) -> float:
    return a / b if b else float("nan")


def expected(case: Case, given: Given) -> list[dict[str, float]]:
    return [_means(_sums(given), given[0]["n"])] * case.world_size


def mistakes(case: Case, given: Given) -> list[Mistake]:
    size, n = case.world_size, given[0]["n"]
    right = expected(case, given)
    real, padded = _sums(given), _sums(given, padding=True)
    dealt, counts = int(sum(s[0] for s in padded)), ", ".join(f"{s[0]:.0f}" for s in real)
    repeats = "1 repeat counts as a sample" if dealt - n == 1 else f"{dealt - n} repeats count as samples"
    whole = _sums(given, whole_rounds=True)
    described: list[tuple[str, str, list[dict[str, float]]]] = []

    def add(code: str, text: str, values: list[dict[str, float]]) -> None:
        described.append((code, text, values))

    if size > 1:
        add(
            "DTL-VALUE-REPEATS",
            f"{repeats}: this is the mean over the {dealt} that were dealt out, not over the {n} of the data set",
            [_means(padded, dealt)] * size,
        )
        add(
            "DTL-VALUE-REPEATS",
            f"{repeats}: the sums hold {dealt} samples, although they are divided by {n}",
            [_means(padded, n)] * size,
        )
        if dealt != n * size:  # else it may be a division by the ranks as well
            add(
                "DTL-VALUE-COUNT",
                f"the sums are right, but they are divided by {dealt}, with the padding; the data set has "
                f"{counted(n, 'sample')}",
                [_means(real, dealt)] * size,
            )
        add(
            "DTL-VALUE-BLOCKS",
            "the padding is looked for as if every rank had a piece of the data set, one after the other; they were "
            "dealt out in turn: the k-th sample of rank r is sample k N + r",
            [_means(_sums(given, blocks=True), n)] * size,
        )
        add(
            "DTL-VALUE-LOCAL",
            "each rank divides its own sum by n: the sums were not added up over the ranks",
            [_means([s], n) for s in real],
        )
        add(
            "DTL-VALUE-MEAN-OF-MEANS",
            f"the mean of the ranks' means: every rank counts the same, although they have {counts} samples",
            [_mean_of_means(real)] * size,
        )
        add(
            "DTL-VALUE-LOCAL",
            "each rank returns the mean over its own samples: nothing came from the other ranks",
            [_means([s], s[0]) for s in real],
        )
        add(
            "DTL-VALUE-LOCAL",
            "each rank returns the mean over its own shard, with its padding: nothing came from the other ranks",
            [_means([s], s[0]) for s in padded],
        )
        add(
            "DTL-VALUE-LOCAL",
            "this is the mean over rank 0's samples alone: a part of the data set, not all of it",
            [_means(real[:1], real[0][0])] * size,
        )
        add(
            "DTL-VALUE-LOCAL",
            "this is the mean over rank 0's shard alone: a part of the data set, not all of it",
            [_means(padded[:1], padded[0][0])] * size,
        )
        add(
            "DTL-VALUE-DROPPED",
            f"{n - n // size * size} of {counted(n, 'sample')} left out: the last round, in which not every rank got "
            "a new one",
            [_means(whole, n // size * size)] * size,
        )
        for text, left_out in _left_out(size, n):
            kept = _sums(given, left_out=left_out)
            for count in {n, int(sum(s[0] for s in kept))}:
                add("DTL-VALUE-WRONG-PADDING", text, [_means(kept, count)] * size)
    none = {"accuracy": 0.0, "loss": right[0]["loss"]}
    text = (
        "the accuracy is 0: either it was rounded down to a whole number, as `//` does, or no prediction is compared "
    )
    add("DTL-VALUE-FLOOR", f"{text}with its target: argmax(dim=1) gives one for each sample", [none] * size)
    add(
        "DTL-VALUE-FLOOR",
        "rounded down to a whole number: `//` and tensors of whole numbers lose the fraction, `/` keeps it",
        [{k: float(v // 1) for k, v in r.items()} for r in right],
    )
    add(
        "DTL-VALUE-PERCENT",
        "the accuracy is 100 times as large: a percentage; return the fraction",
        [{"accuracy": 100 * r["accuracy"], "loss": r["loss"]} for r in right],
    )
    add(
        "DTL-VALUE-SUM",
        "these are sums over the samples: divide them by n",
        [_means(real, 1.0)] * size,
    )
    add(
        "DTL-VALUE-SOFTMAX",
        "the loss is that of probabilities: cross_entropy takes the logits, and makes the softmax itself",
        [_means(_sums(given, softmax=True), n)] * size,
    )
    add(
        "DTL-VALUE-PREDICTED",
        "the loss is that of the classes that are predicted: cross_entropy takes the targets",
        [_means(_sums(given, predicted=True), n)] * size,
    )
    emptied = [len(i["targets"]) - int(s[0]) or len(i["targets"]) for i, s in zip(given, real, strict=True)]
    add(
        "DTL-VALUE-DROPPED",
        "rank 0 has no padding, and counts no sample: a slice [:-k] with k = 0 is empty",
        [_means(_sums(given, left_out=emptied), n)] * size,
    )
    means = [_ratio(s[2], s[0]) for s in real]
    add(
        "DTL-VALUE-REPEATS",
        f"each rank's mean loss is multiplied by {len(given[0]['targets'])}, its number of samples with the padding",
        [{"accuracy": right[0]["accuracy"], "loss": sum(m * len(given[0]["targets"]) for m in means if m == m) / n}]
        * size,
    )
    add(
        "DTL-VALUE-MEAN-OF-MEANS",
        "each rank's mean loss was divided by n, as if it were a sum: reduction='sum' adds up",
        [{"accuracy": right[0]["accuracy"], "loss": sum(means) / n}] * size,
    )
    found = [Mistake(code, text, values) for code, text, values in described]
    for key, other in (("accuracy", "loss"), ("loss", "accuracy")):
        for code, text, values in described:
            mixed = [{key: v[key], other: r[other]} for v, r in zip(values, right, strict=True)]
            found.append(Mistake(code, f"{key}: {text}", mixed))
    return found


def _left_out(size: int, n: int) -> Iterator[tuple[str, list[int]]]:
    """Ways to leave out last samples of the wrong ranks: a text, and how many of each rank's."""
    rounds = -(-n // size)
    extra = rounds * size - n  # repeats, the last sample of each of the last `extra` ranks
    if not extra:
        return
    repeats = f"the repeats are the last sample of {ranks_text(list(range(size - extra, size)))}"
    for ranks in itertools.chain(*(itertools.combinations(range(size), k) for k in range(1, size))):
        if ranks != tuple(range(size - extra, size)):
            text = f"the last sample of {ranks_text(list(ranks))} does not count; {repeats}"
            yield text, [int(rank in ranks) for rank in range(size)]
    if extra > 1:
        for rank in (size - 1, 0):
            text = f"the last {min(extra, rounds)} samples of rank {rank} do not count; {repeats}"
            yield text, [extra * (r == rank) for r in range(size)]


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Compares; names a result that is only rounded."""
    right = expected(case, given)
    found = compare(_VALUES, case, given, right, got)
    return rounded(found, right, got) if found else None


_VALUES = Check(
    on_rank,
    inputs,
    expected,
    cases=_CASES,
    mistakes=mistakes,
    rules=[rules.most_bytes(lambda case, given: _MOST_BYTES)],
)
CHECK = replace(_VALUES, expected=None, verify=verify)
