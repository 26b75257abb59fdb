"""Asks a rank what a front end asks a kernel while somebody types: what completes a word, what a name stands for."""

from typing import Any, Literal

from ..machine.patience import TO_ANSWER_BRIEFLY
from .ranks import RankProcesses
from .standing import ask_standing

Question = Literal["complete_request", "inspect_request"]


def look_up(ranks: RankProcesses, question: Question, content: dict[str, Any]) -> dict[str, Any] | None:
    """What rank 0 answers to a question of Jupyter's messaging protocol; None if it is busy, gone, or slow.

    Call it from the thread that runs cells: both read the same socket.
    """
    ranks.listen()
    if not ranks.processes or not ranks.processes[0].alive:
        return None
    (standing,) = ask_standing(ranks, [0], seconds=TO_ANSWER_BRIEFLY)
    if standing.state != "idle":
        return None
    client = ranks.clients[0]
    reply = client.receive(client.ask(question, content), ranks.patience(TO_ANSWER_BRIEFLY, [0]))
    return reply and reply[0]
