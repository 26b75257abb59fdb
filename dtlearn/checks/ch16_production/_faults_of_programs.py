"""What is wrong with each program of the bug-hunt lab, and what is easily taken for it.

Lines stand here as texts, each once in its program, so that a change of a program moves no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dtlearn.production.bug_lab import PROGRAMS


@dataclass(frozen=True)
class Fault:
    """The fault of one program.

    Attributes:
        ranks: whose calls or values are wrong.
        lines: where it can be mended, as texts; any of them is right.
        cause: a key of `CAUSES`.
        shows: lines on which a rank waits for it, or on which its values come out.
        only: what a rank does that is not among `ranks`, for the verdict.
        near: causes that look alike, each with what speaks against it.
    """

    ranks: tuple[int, ...]
    lines: tuple[str, ...]
    cause: str
    shows: tuple[str, ...]
    only: str
    near: Mapping[str, str] = field(default_factory=dict)


WAITS = "a rank that you name only waits. Which ranks are missing at the call in which it waits?"
IS_RIGHT = "a rank that you name has the calls and the values that it should have"
FAULTS: dict[str, Fault] = {
    "sharded_save": Fault(
        (1, 2),
        ("if rank == 0:", "weights = whole(shard)"),
        "rank decides",
        ("dist.all_gather(parts, shard)", "dist.barrier()  # nobody goes on before the file is there"),
        WAITS,
        {
            "data decide": "the calls differ in the first step already, whatever the data are",
            "other order": "the calls differ, but how often does each rank make each of them, if it goes on?",
            "straggler": "the others do not wait for a rank that has more work: it would never come",
        },
    ),
    "detector_logs": Fault(
        (2,),
        ("if boxes:", 'losses["box"] = torch.tensor(boxes).mean()', 'losses = {"class": torch.tensor(0.5 + rank)}'),
        "data decide",
        ("dist.all_reduce(mean)", "for name, loss in losses.items():", "logs[name] = mean.item()"),
        WAITS,
        {
            "rank decides": "no branch asks for the rank. What do the ranks' branches look at?",
            "other order": "count the calls of each rank: the numbers differ, not the order",
            "shape or dtype": "all calls hand in one float32 number",
        },
    ),
    "codebook": Fault(
        (0, 1),
        ("dist.all_reduce(sums.contiguous())", "sums = (vectors.T @ chosen).T  # (K, D)"),
        "a copy",
        ("codes = sums / counts[:, None]", "return codes.tolist()"),
        IS_RIGHT,
        {
            "wrong mean": "the divisor is right: look at what it divides",
            "own for each": "each rank has its own vectors, as it should. What do the ranks have together afterwards?",
            "not waited for": "both calls have ended before the next line runs",
            "shape or dtype": "the ranks' calls fit together. Which tensor does the second one change?",
        },
    ),
    "cache_groups": Fault(
        (0, 1, 2, 3),
        ("group = dist.new_group(members)", "members = [2 * node, 2 * node + 1]"),
        "groups",
        ("dist.all_reduce(cached, op=dist.ReduceOp.MIN, group=group)",),
        WAITS,
        {
            "other order": "each rank makes one such call only: which ones would it have to make?",
            "rank decides": "all ranks make the call, but for what?",
            "wrong peer": "the numbers are global ones, as the call takes them",
        },
    ),
    "loss_log": Fault(
        (0, 1),
        ("dist.all_reduce(mean)",),
        "too often",
        ("total += mean.item()", "mean = loss / n", "log.append(total / 16)", "dist.all_reduce(gradient)"),
        IS_RIGHT,
        {
            "too much": "128 bytes in all are not much. What costs the time, if not the bytes?",
            "straggler": "both ranks do the same work",
            "wrong mean": "the log is right, as the report says",
        },
    ),
    "checkpoint_thread": Fault(
        (0, 1),
        (
            'state = {"weight": weight.detach().cpu()}',
            "weight += gradient",
            "writer = threading.Thread(target=write, args=(state, step))",
        ),
        "changed meanwhile",
        ('file["weight"] = state["weight"].item()', "writer.start()"),
        IS_RIGHT,
        {
            "a copy": "it is the other way round: is anything copied there?",
            "not waited for": "each all-reduce has ended, and the thread has been waited for",
            "not restored": "the file has all that it should have. Is it of the step that it names?",
        },
    ),
    "pipeline_pairs": Fault(
        (2, 3),
        ("neighbour = 1 - stage",),
        "wrong peer",
        ("dist.send(x, neighbour)", "dist.recv(x, neighbour)"),
        IS_RIGHT,
        {
            "groups": "all ranks create both groups, in the same order",
            "other order": "a send and a receive each: look at who is called",
            "rank decides": "each stage has its half of the message",
        },
    ),
    "collected_scores": Fault(
        (0,),
        ("arrivals[-1].wait()",),
        "not waited for",
        ("mean = torch.cat(scores).mean().item()", "arrival.wait()", "for arrival in arrivals[:-1]:"),
        "a rank that you name sends its score, sooner or later. Who uses it, and when?",
        {
            "straggler": "a late rank makes a program slow. This one is wrong",
            "wrong mean": "the mean of what is there is right. Is all of it there?",
            "changed meanwhile": "nothing changes a score but its arrival",
        },
    ),
    "loss_metric": Fault(
        (0, 1, 2, 3),
        ("dist.all_gather(parts, losses)", "losses = torch.full((256,), float(rank + step))  # of this rank's samples"),
        "too much",
        ("parts = [torch.empty_like(losses) for _ in range(n)]", "mean = torch.cat(parts).mean()"),
        IS_RIGHT,
        {
            "too often": "it is shown after each step, and communicates once a step",
            "straggler": "all ranks do the same work",
            "rank decides": "all ranks make the call, and it ends",
        },
    ),
    "resumed_dropout": Fault(
        (1, 2),
        (
            'file: list[Any] = [{"step": 2, "generator": generator.get_state()}]',
            "dist.broadcast_object_list(file, src=0)",
            'generator.set_state(file[0]["generator"])',
        ),
        "one for all",
        ("return torch.rand(3, generator=generator).tolist()",),
        IS_RIGHT,
        {
            "own for each": "it is the other way round: compare what the ranks return",
            "not restored": "a state of the generator is restored on each rank. Whose?",
            "rank decides": "all ranks make the same calls",
        },
    ),
}


def numbers(program: str, lines: tuple[str, ...]) -> set[int]:
    """The numbers of these lines."""
    texts = [line.strip() for line in PROGRAMS[program].text.splitlines()]
    assert all(texts.count(line) == 1 for line in lines), (program, lines)
    return {texts.index(line) + 1 for line in lines}
