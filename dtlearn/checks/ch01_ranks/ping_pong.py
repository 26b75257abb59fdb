"""ch01.ping_pong: one pair of ranks swaps messages, then two, then one with a rank left over; and other messages."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, Stress, rules

from ..own_work import no_objects

CASES: dict[str, dict[str, Any]] = {
    "one pair": {"sizes": (2,)},
    "two pairs": {"says": "the pairs are 0 and 1, 2 and 3: each rank has one partner", "sizes": (4,)},
    "a rank without a partner": {
        "says": "the last of an odd number of ranks has no partner, and returns None",
        "sizes": (1, 3),
    },
    "a message of two dimensions": {
        "says": "a message may have several dimensions: what is returned has its shape",
        "shape": (2, 3),
    },
    "whole numbers": {
        "says": "a message may hold whole numbers: what is returned has its dtype",
        "dtype": torch.int64,
    },
    "a long message": {"says": "a message may be long: all of it is expected", "shape": (2000,)},
}
PARTNER, SIZE = "rank + 1 if rank % 2 == 0 else rank - 1", "dist.get_world_size()"
BUFFER, RETURN = "theirs = torch.empty_like(message)", "return theirs"
SEND = "dist.recv(theirs, partner)\n        dist.send(message, partner)"
EDITS = (
    Edit("every rank returns its own message: return the one that it received", {RETURN: "return message.clone()"}),
    Edit("the odd rank of each pair is right, the even one has its own message: did the odd one send back what it had "
         "received, in place of its own message?", {SEND: SEND.replace("message", "theirs")}),
    Edit("each rank returns its partner's number, which is what recv returns: the message is in the tensor that recv "
         "was given", {RETURN: "return partner"}),
    Edit("each rank has the message of its left neighbour, as in a ring: the pairs are 0 and 1, 2 and 3",
         {BUFFER: f"{BUFFER}\n    ring = {SIZE} // 2 * 2\n    sending = dist.isend(message, (rank + 1) % ring)\n"
                  "    dist.recv(theirs, (rank - 1) % ring)\n    sending.wait()\n    return theirs"}),
    Edit("the pairs are ranks that lie half the job apart: they are 0 and 1, 2 and 3",
         {PARTNER: f"(rank + {SIZE} // 2) % {SIZE} if {SIZE} % 2 == 0 else {PARTNER}"}),
    Edit("the pairs are the first rank and the last one, and so on: they are 0 and 1, 2 and 3",
         {PARTNER: f"{SIZE} - 1 - rank if {SIZE} % 2 == 0 else {PARTNER}"}),
    Edit("the rank that has no partner returns its own message: None is expected",
         {"        return None": "        return message.clone()"}),
    Edit("the rank that has no partner returns a tensor of zeros: None is expected",
         {"        return None": "        return torch.zeros_like(message)"}),
    Edit("the message has lost its shape: a tensor with the shape of `message` is expected",
         {RETURN: "return theirs.flatten()"}),
    Edit("the message has another dtype: a tensor with the dtype of `message` is expected",
         {BUFFER: f"message = message.float(); {BUFFER}"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, dtype = case.generator(), case.params.get("dtype", torch.float32)
    shape = case.params.get("shape", (3,))
    return [{"message": (1000 * torch.randn(shape, generator=g)).to(dtype)} for _ in range(case.world_size)]


def on_rank(answer: Any, message: torch.Tensor) -> Any:
    return answer(message)


def expected(case: Case, given: Given) -> list[torch.Tensor | None]:
    messages = [i["message"] for i in given]
    pairs = [messages[first : first + 2] for first in range(0, case.world_size, 2)]
    return [got for pair in pairs for got in (pair[::-1] if len(pair) == 2 else [None])]


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"message": torch.tensor(numbers)} for numbers in ([1.0, 2.0], [5.0, 6.0], [8.0, 9.0])],
    rules=[rules.only("send", "recv", "isend", "irecv", why="Two ranks talk here; a collective is for all of them.")],
    stress=Stress(poison=True),
    reads=[no_objects],
)
