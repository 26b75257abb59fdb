"""ch03.global_accuracy: predictions of ranks, whose shards end with repeated samples from the second case on."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import cross_entropy

from dtlearn.grading import Case, Check, Edit, Given, rules

# Samples: `per_rank` for each rank, and `more`.
CASES: dict[str, dict[str, Any]] = {
    "a number of samples that N divides": {"per_rank": 4},
    "a number of samples that N does not divide": {
        "says": "the k-th sample of rank r is at position k N + r: from position n on they are repeats, and do not "
        "count",
        "per_rank": 3,
        "more": 1,
    },
    "one sample": {
        "says": "with fewer samples than ranks some ranks have padding only: their sums are 0, and they take part",
        "per_rank": 0,
        "more": 1,
    },
}
N, SUM, REAL = "dist.get_world_size()", "dist.all_reduce(sums)", "real = dealt < n"
RIGHT, LOSS = "correct = (logits.argmax(dim=1) == targets).sum()", 'cross_entropy(logits, targets, reduction="sum")'
TAKEN, BOTH = "logits, targets = logits[real], targets[real]", "torch.stack([correct.double(), loss.double()])"
OVER_N, RETURN = "(sums / n).tolist()", '{"accuracy": accuracy, "loss": mean_loss}'
PADDED = "repeats count as samples: this is the mean over all that were dealt out, not over the n of the data set"
SUMMED = "repeats count as samples: they are in the sums, which are divided by n"
OF_RANK_0 = "this is the mean over rank 0's samples alone: a part of the data set, not all of it"
OWN = "each rank returns the mean over its own samples: nothing came from the other ranks"
SHARE = "each rank divides its own sum by n: the sums were not added up over the ranks"
TRIMMED = "the repeats are taken from the wrong ranks: they are the last sample of each of the last ranks"
MEANS = "the mean of the ranks' means: every rank counts the same, although they have different numbers of samples"
DOWN = "rounded down to a whole number: `//` and tensors of whole numbers lose the fraction, `/` keeps it"
ALONE = 'cross_entropy(logits, targets, reduction="mean")'
KEPT, PADDING = "real = torch.arange(len(targets)) < len(targets)", f"len(targets) * {N} - n"
REPEATED = "logits[~real], targets[~real]"
# The special ones first: of two that lead to the same values the first one names them.
EDITS = (
    Edit("a rank that has padding only divides 0 by 0: leave out the mean of its samples, and add up",
         {BOTH: f"{BOTH} / len(targets) * len(targets)"}),
    Edit("each rank's mean is multiplied by its number of samples with the padding: add up those of real samples",
         {"real = dealt": "with_padding = len(targets); real = dealt", BOTH: f"{BOTH} / len(targets) * with_padding"}),
    Edit("the padding is looked for as if every rank had a piece of the data set, one after the other; they were dealt "
         "out in turn: the k-th sample of rank r is sample k N + r",
         {REAL: "real = dist.get_rank() * len(targets) + torch.arange(len(targets)) < n"}),
    Edit(TRIMMED, {REAL: f"{KEPT} - (dist.get_rank() < {PADDING})"}),
    Edit(TRIMMED, {REAL: f"{KEPT} - (dist.get_rank() == 0) * ({PADDING})"}),
    Edit(TRIMMED, {REAL: f"{KEPT} - (dist.get_rank() == {N} - 1) * ({PADDING})"}),
    Edit("the last round is left out, in which not every rank got a new sample",
         {REAL: f"real = torch.arange(len(targets)) < n // {N}", OVER_N: f"(sums / (n // {N} * {N})).tolist()"}),
    Edit("the sums are right, but they are divided by the number of samples with the padding: the data set has n",
         {"real = dealt": f"with_padding = len(targets) * {N}; real = dealt",
          OVER_N: "(sums / with_padding).tolist()"}),
    Edit("accuracy: repeats count as samples",
         {TAKEN: f"more = (logits[~real].argmax(dim=1) == targets[~real]).sum(); {TAKEN}",
          BOTH: BOTH.replace("correct", "(correct + more)")}),
    Edit("loss: repeats count as samples",
         {TAKEN: f"more = cross_entropy({REPEATED}, reduction='sum'); {TAKEN}",
          BOTH: BOTH.replace("loss.", "(loss + more).")}),
    Edit(SUMMED, {TAKEN: ""}),
    Edit(PADDED, {TAKEN: "", OVER_N: f"(sums / (len(targets) * {N})).tolist()"}),
    Edit(MEANS, {BOTH: f"{BOTH} / len(targets)", OVER_N: f"(sums / {N}).tolist()"}),
    Edit("a slice [:-k] with k = 0 is empty: a rank without padding counts no sample",
         {TAKEN: "logits, targets = (t[: -int((~real).sum())] for t in (logits, targets))"}),
    Edit("accuracy: the sums were not added up over the ranks", {SUM: f"{SUM}; sums[0] = correct"}),
    Edit("loss: the sums were not added up over the ranks", {SUM: f"{SUM}; sums[1] = loss"}),
    Edit(SHARE, {SUM: "pass"}),
    Edit(OWN, {SUM: "pass", OVER_N: "(sums / len(targets)).tolist()"}),
    Edit(OWN, {SUM: "pass", TAKEN: "", OVER_N: "(sums / len(targets)).tolist()"}),
    Edit(OF_RANK_0, {SUM: "sums /= len(targets); dist.broadcast(sums, 0)", OVER_N: "sums.tolist()"}),
    Edit(OF_RANK_0, {TAKEN: "", SUM: "sums /= len(targets); dist.broadcast(sums, 0)", OVER_N: "sums.tolist()"}),
    Edit("only rank 0 has the sums of all ranks, as after dist.reduce: every rank returns the result",
         {SUM: "mine = sums.clone(); dist.all_reduce(sums); sums = mine if dist.get_rank() else sums"}),
    Edit("the accuracy is 0: either it was rounded down to a whole number, as `//` does, or no prediction is compared "
         "with its target: argmax(dim=1) gives one for each sample", {RETURN: '{"accuracy": 0.0, "loss": mean_loss}'}),
    Edit(DOWN, {OVER_N: "(sums // n).tolist()"}),
    Edit(DOWN, {BOTH: "torch.stack([correct, loss.long()])"}),
    Edit("the accuracy is 100 times as large: a percentage; return the fraction",
         {RETURN: '{"accuracy": 100 * accuracy, "loss": mean_loss}'}),
    Edit("these are sums over the samples: divide them by n", {OVER_N: "sums.tolist()"}),
    Edit("the digits of 16 bits only: add up in float32 or float64",
         {BOTH: "torch.stack([correct.half(), loss.half()])"}),
    Edit("the loss is that of probabilities: cross_entropy takes the logits, and makes the softmax itself",
         {LOSS: LOSS.replace("logits", "logits.softmax(1)")}),
    Edit("the loss is that of the classes that are predicted: cross_entropy takes the targets",
         {LOSS: LOSS.replace("targets", "logits.argmax(dim=1)")}),
    Edit("each rank's mean loss was divided by n, as if it were a sum: reduction='sum' adds up", {LOSS: ALONE}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    samples = case.params["per_rank"] * n + case.params.get("more", 0)
    logits = 3 * torch.randn(samples, 3, generator=g)
    targets = torch.randint(3, (samples,), generator=g)
    targets[0] = logits[0].argmax()  # the first repeat is right, and a sample that is right is what the mean has to be
    if samples > 1:  # neither all nor none
        targets[1] = logits[1].argmin()
    places = torch.arange(-(-samples // n) * n) % samples
    return [{"logits": logits[places[r::n]], "targets": targets[places[r::n]], "n": samples} for r in range(n)]


def on_rank(answer: Any, logits: torch.Tensor, targets: torch.Tensor, n: int) -> Any:
    return answer(logits, targets, n)


def expected(case: Case, given: Given) -> list[dict[str, float]]:
    """The data set as a whole, as the sampler had it before it was dealt out."""
    logits, targets = (torch.stack([own[name] for own in given], 1).flatten(0, 1) for name in ("logits", "targets"))
    n = given[0]["n"]
    accuracy = (logits[:n].argmax(1) == targets[:n]).double().mean().item()
    return [{"accuracy": accuracy, "loss": cross_entropy(logits[:n].double(), targets[:n]).item()}] * case.world_size


LOGITS = torch.tensor([[2.0, 0.0], [0.0, 2.0], [0.0, 2.0], [2.0, 0.0]])
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    rules=[rules.most_bytes(lambda case, given: 64)],
    example=[{"logits": LOGITS[rank::2], "targets": torch.tensor([[0, 1], [0, 0]][rank]), "n": 3} for rank in range(2)],
)
