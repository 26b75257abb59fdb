"""The notebook's end of the judge: starts it in the background, asks it for verdicts, stops it in the middle."""

import os
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

from ...runtime.errors import DtlearnError, LaunchError
from ...runtime.machine.helper_process import HelperProcess, OnePerProcess
from ...runtime.machine.patience import TO_END_POLITELY, TO_STOP_GRADING, Patience
from ...runtime.machine.processes import descendants
from ..own_run import OwnRun
from ..verdict import Result, Verdict

_SERVER = "dtlearn.grading.judge_process.server"
JudgeReply = tuple[Result, int, int] | Verdict | OwnRun


class JudgeError(DtlearnError):
    """The judge could not give a verdict. The answer is not to blame."""


class Judge:
    """One judge process. One thread at a time may ask it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = 0
        try:
            self.process = HelperProcess(_SERVER, [os.getpid()], piped=True)
        except (OSError, LaunchError) as error:
            raise JudgeError(f"the judge cannot be started: {error}") from error

    @property
    def pid(self) -> int:
        return self.process.pid

    def grade(
        self,
        root: Path,
        exercise: str,
        *,
        source: str | None = None,
        seed: int | None = None,
        keep: bool = True,
        draw: bool = False,
    ) -> Generator[JudgeReply]:
        """Grade, as `grade_file.grade_file` does. Yields each result as it comes, with how many there are and will be;
        the verdict; and, if `draw`, the run that is worth a picture, if there is one.

        Raises:
            ValueError: the answer cannot be read, or the exercise has no check.
            JudgeError: the judge ended, or failed.
            KeyboardInterrupt: by the user; the grading was stopped, and its ranks are gone.
        """
        with self._lock:
            self._asked += 1
            number = self._asked
            request, ended = {"root": str(root), "exercise": exercise, "source": source}, False
            try:
                self._send({"do": "grade", "id": number, **request, "seed": seed, "keep": keep, "draw": draw})
                for step in self._answers(number, draw):
                    ended = not isinstance(step, tuple)  # the reader of a verdict may stop here
                    yield step
            except (KeyboardInterrupt, GeneratorExit):
                if not ended:
                    self._cancel(number)
                raise

    def _answers(self, number: int, draw: bool) -> Generator[JudgeReply]:
        while True:
            answer = self._receive(None)
            if answer is None or answer["id"] != number:  # what was left over from one that was stopped
                continue
            if answer["kind"] == "progress":
                result = answer["result"]
                yield Result(**{**result, "details": tuple(result["details"])}), answer["done"], answer["of"]
            elif answer["kind"] == "verdict":
                yield Verdict.from_json(answer["verdict"])
                if not draw:
                    return
            elif answer["kind"] == "run":
                if answer["run"]:
                    yield OwnRun.from_json(answer["run"])
                return
            elif answer.get("type") == "ValueError":
                raise ValueError(answer["text"])
            else:
                raise JudgeError(f"the judge failed: {answer.get('text', answer['kind'])}")

    def _cancel(self, number: int) -> None:
        """Stop a grading; if that does not work in time, end the judge and with it everything it started."""
        patience, stopped = Patience(TO_STOP_GRADING, [self.pid, *descendants(self.pid)]), False
        try:
            self._send({"do": "cancel", "id": number})
            while not stopped and not patience.over():
                answer = self._receive(patience)
                stopped = answer is not None and answer["id"] == number and answer["kind"] != "progress"
        except JudgeError:  # it is gone already
            stopped = True
        finally:
            if not stopped:  # too slow, or interrupted once more
                self.end()

    def _send(self, request: dict[str, Any]) -> None:
        try:
            self.process.send(request)
        except (OSError, ValueError) as error:
            raise JudgeError(self._obituary()) from error

    def _receive(self, patience: Patience | None) -> dict[str, Any] | None:
        """The next message; None if none comes in time."""
        try:
            return cast("dict[str, Any] | None", self.process.receive(patience))
        except EOFError:
            raise JudgeError(self._obituary()) from None

    def _obituary(self) -> str:
        words = self.process.last_words()
        said = "\n".join(["Its last words:", *(f"  {line}" for line in words)]) if words else ""
        return (
            f"the judge process {self.process.ending} (exit code {self.process.exit_code}). Your answer is kept and "
            f"not to blame. Try again: a new judge is started. {said}"
        ).rstrip()

    def end(self) -> None:
        """End the judge and everything it started."""
        self.process.close(TO_END_POLITELY)


_judges = OnePerProcess(Judge)


def get_judge() -> Judge:
    """This process's judge, started if there is none or it died. It may still be loading; a request waits for it."""
    return _judges.get()
