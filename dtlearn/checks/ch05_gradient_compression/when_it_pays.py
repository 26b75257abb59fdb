"""ch05.when_it_pays: times without latency first, and with it; then the links. No ranks are needed.

The numbers are those of top-k: 8 bytes for each of 1 in 100 of 100 million numbers, on 1 Gb/s.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP

TIMES, LINKS = ["plain", "coded"], ["pays", "bandwidth"]
TOP_K = {"num_ranks": 8, "nbytes": 4e8, "alpha": 0.0, "beta": 1.25e8, "payload": 8e6, "encode": 0.0, "decode": 0.0}
CODEC = {"encode": 0.125, "decode": 0.03125}
SMALL = {"num_ranks": 3, "nbytes": 10.0, "alpha": 1e-4, "beta": 1e3, "payload": 1.0, "encode": 1e-3, "decode": 5e-4}


def links(numbers: dict[str, float], says: str) -> dict[str, Any]:
    """A case of which the links are compared; the times are right by then."""
    return {"says": says, "numbers": TOP_K | numbers, "look": LINKS}


# `look`: what of the answer is compared.
CASES: dict[str, dict[str, Any]] = {
    "no latency": {"numbers": TOP_K | CODEC, "look": TIMES},
    "latency": {
        "says": "each step takes alpha: 2 (N - 1) steps of the all-reduce, N - 1 of the all-gather",
        "numbers": TOP_K | CODEC | {"alpha": 0.01},
        "look": TIMES,
    },
    "the bandwidth at which both take the same time": links(
        CODEC | {"alpha": 0.01},
        "the times are right, but not the links: set the two times equal, and solve for the bandwidth. This codec "
        "saves bytes, so it pays on slow links",
    ),
    "128 ranks": links(
        CODEC | {"num_ranks": 128},
        "128 payloads of 1 in 100 numbers are more bytes than the ring sends: a codec that also takes time to compute "
        "never pays",
    ),
    "as many bytes": links(
        CODEC | {"nbytes": 3.2e7},
        "a codec that sends as many bytes, and takes time to compute, never pays: bandwidth is None",
    ),
    "a codec without computation": links(
        {"alpha": 0.01}, "fewer bytes, in fewer steps, without computation: it always pays, and bandwidth is None"
    ),
    "neither latency nor computation": links(
        {}, "fewer bytes, and nothing else that takes time: it always pays, and bandwidth is None"
    ),
    "as many bytes in fewer steps": links(
        {"nbytes": 3.2e7, "alpha": 0.01},
        "as many bytes in fewer steps, without computation: it always pays, and bandwidth is None",
    ),
    "128 ranks, a codec without computation": links(
        {"num_ranks": 128, "alpha": 0.01},
        "it sends more bytes in fewer steps: it pays on fast links, above the bandwidth at which both take the same "
        "time",
    ),
    "the same time on every link": links(
        {"nbytes": 3.2e7},
        "as many bytes, and nothing else that takes time: where both ways take the same time on every link, coded "
        "never pays, and bandwidth is None",
    ),
    "128 ranks, neither latency nor computation": links(
        {"num_ranks": 128}, "more bytes, and nothing else that takes time: it never pays, and bandwidth is None"
    ),
    "a latency above the computation": links(
        CODEC | {"alpha": 0.1},
        "fewer bytes, and the steps that it saves take longer than the codec computes: it always pays, and bandwidth "
        "is None",
    ),
    "128 ranks, a latency above the computation": links(
        CODEC | {"num_ranks": 128, "alpha": 0.1},
        "more bytes, and the steps that it saves take longer than the codec computes: it pays on fast links",
    ),
    "3 ranks, and divisions that leave a rest": {
        "says": "what holds for 8 ranks and large numbers holds here too: with N - 1 = 2 steps, divisions by `/`, and "
        "nothing rounded",
        "numbers": SMALL,
        "look": TIMES + LINKS,
    },
}
SENT = "sent, sent_coded = 2 * steps * nbytes / num_ranks, steps * payload"
FIXED = "fixed, fixed_coded = 2 * steps * alpha, steps * alpha + encode + num_ranks * decode"
SAVED = "saved, added = sent - sent_coded, fixed_coded - fixed"
NONE = 'pays, bandwidth = ("always" if saved > 0 or added < 0 else "never"), None'
IF, CROSS = "if saved * added > 0:", '("below" if saved > 0 else "above"), saved / added'
PLAIN, OTHER = '"plain": fixed + sent / beta', '"coded": fixed_coded + sent_coded / beta'
RETURN = "return {**times,"


def sends(plain: str = "2 * steps * nbytes / num_ranks", coded: str = "steps * payload") -> dict[str, str]:
    return {SENT: f"sent, sent_coded = {plain}, {coded}"}


def takes(
    plain: str = "2 * steps * alpha", coded: str = "steps * alpha + encode + num_ranks * decode"
) -> dict[str, str]:
    return {FIXED: f"fixed, fixed_coded = {plain}, {coded}"}


def answers(always: str = '"always", None', never: str = '"never", None') -> dict[str, str]:
    return {NONE: f"pays, bandwidth = ({always}) if saved > 0 or added < 0 else ({never})"}


EDITS = (
    Edit("the all-reduce is taken for N - 1 steps, those of the reduce-scatter: the all-gather takes N - 1 more",
         sends(plain="steps * nbytes / num_ranks") | takes(plain="steps * alpha")),
    Edit("half of what the all-reduce sends is counted: it has 2 (N - 1) steps",
         sends(plain="steps * nbytes / num_ranks")),
    Edit("the all-reduce is taken to send the tensor twice: in 2 (N - 1) steps of 1/N it sends 2 (N - 1)/N of it",
         sends(plain="2 * nbytes")),
    Edit("each step of the all-reduce is taken to send the whole tensor: it sends 1/N of it",
         sends(plain="2 * steps * nbytes")),
    Edit("the payload is counted once: a rank sends one payload in each of N - 1 steps", sends(coded="payload")),
    Edit("N payloads are counted: a rank sends one in each of N - 1 steps", sends(coded="num_ranks * payload")),
    Edit("the payload is taken for what all ranks have together: each rank has one of this size",
         sends(coded="steps * payload / num_ranks")),
    Edit("payloads are added up on the way, as in an all-reduce: they cannot be, so each goes to all ranks",
         sends(coded="2 * steps * payload / num_ranks")),
    Edit("payloads are added up on the way, as in an all-reduce, and the sum is decoded: they cannot be, so each goes "
         "to all ranks, and each is decoded",
         {**sends(coded="2 * steps * payload / num_ranks"), **takes(coded="2 * steps * alpha + encode + decode")}),
    Edit("2 (N - 1) payloads are counted: an all-gather has N - 1 steps", sends(coded="2 * steps * payload")),
    Edit("the bytes are multiplied by 8 as if beta were bits per second: it is bytes per second",
         sends("16 * steps * nbytes / num_ranks", "8 * steps * payload")),
    Edit("the bytes are multiplied by beta: it is bytes per second, divide",
         {PLAIN: PLAIN.replace("/", "*"), OTHER: OTHER.replace("/", "*")}),
    Edit("the times are in milliseconds: they are in seconds",
         {PLAIN: '"plain": 1e3 * (fixed + sent / beta)', OTHER: '"coded": 1e3 * (fixed_coded + sent_coded / beta)'}),
    Edit("the time of one decoding is counted: a rank decodes all N payloads, and nothing happens at the "
         "same time", takes(coded="steps * alpha + encode + decode")),
    Edit("N - 1 payloads are decoded: a rank decodes its own too, or the residual and the mean have other values",
         takes(coded="steps * alpha + encode + steps * decode")),
    Edit("N payloads are encoded: a rank encodes one",
         takes(coded="steps * alpha + num_ranks * (encode + decode)")),
    Edit("encoding and decoding are left out of the time", takes(coded="steps * alpha")),
    Edit("decoding is left out of the time", takes(coded="steps * alpha + encode")),
    Edit("the latency is left out of the times: each step takes alpha",
         takes("0.0", "encode + num_ranks * decode")),
    Edit("the latency counts once: each step is a message of its own and takes it again",
         takes("alpha", "alpha + encode + num_ranks * decode")),
    Edit("the all-gather is taken to have 2 (N - 1) steps: it has N - 1",
         takes(coded="2 * steps * alpha + encode + num_ranks * decode")),
    Edit("the all-reduce is taken to have the latency of N - 1 steps: it has 2 (N - 1)", takes(plain="steps * alpha")),
    Edit("the times are right, but the bandwidth leaves out the latency: the all-gather has N - 1 steps less",
         {SAVED: "saved, added = sent - sent_coded, encode + num_ranks * decode"}),
    Edit("the times are right, but the bandwidth leaves out decoding, or decodes one payload only",
         {SAVED: "saved, added = sent - sent_coded, fixed_coded - fixed - num_ranks * decode"}),
    Edit("the times are right, but the bandwidth leaves out decoding, or decodes one payload only",
         {SAVED: "saved, added = sent - sent_coded, fixed_coded - fixed - steps * decode"}),
    Edit("the times are right, but the bandwidth is that of all bytes of the all-reduce: the payloads come off",
         {SAVED: "saved, added = sent, fixed_coded - fixed"}),
    Edit("the times are right, but the bandwidth is upside down: it is bytes over seconds",
         {CROSS: CROSS.replace("saved / added", "added / saved")}),
    Edit("the times are right, but the bandwidth is in bits per second: it is in bytes per second",
         {CROSS: f"{CROSS} * 8"}),
    Edit("the times are right, but `below` and `above` are exchanged",
         {CROSS: CROSS.replace("saved > 0", "saved < 0")}),
    Edit("`pays` says who is the faster one on this link: it says on which links of all the codec pays",
         {RETURN: 'pays, bandwidth = ("always" if times["coded"] < times["plain"] else "never"), None\n    '
                  "return {**times,"}),
    Edit("a bandwidth below 0 is returned: no link has it. The times differ by the same sign on all links",
         {IF: "if added:"}),
    Edit("where the codec never pays, bandwidth is 0: it is None", answers(never='"never", 0.0')),
    Edit("a codec that never pays is said to pay below 0: it never pays, and bandwidth is None",
         answers(never='"below", 0.0')),
    Edit("a codec that sends as many bytes and computes is said to pay below 0: it never pays, and bandwidth is None",
         {IF: "if saved * added > 0 or (saved == 0 and added > 0):",
          CROSS: '("below" if saved >= 0 else "above"), saved / added'}),
    Edit("where the codec always pays, bandwidth is infinite: it is None", answers(always='"always", float("inf")')),
    Edit("a codec that always pays is said to pay below infinity: it always pays, and bandwidth is None",
         answers(always='"below", float("inf")')),
    Edit("a codec that always pays is said to pay above 0: it always pays, and bandwidth is None",
         answers(always='"above", 0.0')),
    Edit("fewer bytes, and no other time: the codec pays on every link, and this says it never does",
         {NONE: NONE.replace("saved > 0 or added < 0", "added < 0")}),
    Edit("as many bytes in fewer steps: the codec pays on every link, and this says it never does",
         {NONE: NONE.replace("saved > 0 or added < 0", "saved > 0")}),
    Edit("a codec that sends more bytes in fewer steps is said never to pay: it pays on fast links",
         {IF: "if saved > 0 and added > 0:", NONE: NONE.replace("added < 0", "(added < 0 and saved == 0)")}),
    Edit("a codec that sends more bytes in fewer steps is said always to pay: on slow links the bytes count",
         {IF: "if saved > 0 and added > 0:"}),
    Edit("a codec that sends more bytes in fewer steps is said to pay on slow links: it pays on fast ones",
         {CROSS: '"below", saved / added'}),
    Edit("as many bytes, and no other time: the codec pays on no link, and this says it always does",
         {NONE: NONE.replace("saved > 0 or added < 0", "saved >= 0 and added <= 0")}),
    Edit("a codec that sends more bytes, with no other time, is said to pay above infinity: it never pays, and "
         "bandwidth is None",
         {IF: "if saved * added > 0 or (saved < 0 and added == 0):", CROSS: CROSS.replace(
             "saved / added", 'saved / added if added else float("inf")')}),
    Edit("a codec that computes is said not to pay on fast links: where the steps that it saves take longer than it "
         "computes, it pays on all",
         {IF: "if saved * added > 0 or (saved > 0 and encode + decode > 0):",
          CROSS: CROSS.replace("saved / added", "abs(saved / (added or 1e-300))")}),
    Edit("a codec that sends more bytes and computes is said never to pay: where the steps that it saves take longer, "
         "it pays on fast links",
         {IF: "if saved * added > 0 and (saved > 0 or encode + decode == 0):",
          NONE: NONE.replace("added < 0", "(added < 0 and saved == 0)")}),
    Edit("the part of the tensor that a rank sends is rounded: sizes are numbers of any kind, divide with `/`",
         sends(plain="2 * steps * (nbytes // num_ranks)")),
    Edit("the bandwidth is rounded: it need not be whole",
         {CROSS: CROSS.replace("saved / added", "saved // added")}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    return [{**case.params["numbers"], "look": case.params["look"]}] * case.world_size


def on_rank(answer: Any, num_ranks: int, nbytes: float, alpha: float, beta: float, look: Any, **codec: float) -> Any:
    found = answer(num_ranks, nbytes, alpha, beta, **codec)
    left_out = {"plain", "coded", "pays", "bandwidth"} - {*look}
    return {k: v for k, v in found.items() if k not in left_out} if isinstance(found, dict) else found


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """Message by message, in exact fractions; the links by who is the faster one on a very slow and a very fast one."""
    job = {name: Fraction(value) for name, value in case.params["numbers"].items()}
    ranks = int(job["num_ranks"])

    def seconds(beta: Fraction) -> dict[str, Fraction]:
        ring = [job["alpha"] + job["nbytes"] / ranks / beta for _ in range(2 * (ranks - 1))]
        gather = [job["alpha"] + job["payload"] / beta for _ in range(ranks - 1)]
        return {"plain": sum(ring), "coded": job["encode"] + sum(gather) + sum([job["decode"]] * ranks)}  # type: ignore[dict-item]

    slow, fast = Fraction(1, 10**9), Fraction(10**30)
    gains = [(of["plain"] - of["coded"]) for of in (seconds(slow), seconds(fast))]
    names = {(True, True): "always", (True, False): "below", (False, True): "above", (False, False): "never"}
    pays, bandwidth = names[gains[0] > 0, gains[1] > 0], None
    if pays in ("below", "above"):  # a line in 1/beta, through both points
        x, y = 1 / slow, 1 / fast
        bandwidth = float(1 / (y + gains[1] * (x - y) / (gains[1] - gains[0])))
    times = {name: float(value) for name, value in seconds(job["beta"]).items()}
    facts = {**times, "pays": pays, "bandwidth": bandwidth}
    return [{name: facts[name] for name in case.params["look"]}] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}{case.says}" if case.says else ""


EXAMPLE = {"num_ranks": 4, "nbytes": 1000.0, "alpha": 0.0, "beta": 1e6, "payload": 100.0, "encode": 5e-4}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{**EXAMPLE, "decode": 1e-4, "look": TIMES + LINKS}],
    why=why,
    rules=[rules.most_messages("0")],
    rtol=1e-6,
    atol=1e-18,
)
