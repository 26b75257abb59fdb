"""The questions, as a chapter asks and answers them.

    sent = predict("How many bytes does one all-reduce of the gradients send?", unit="bytes", id="ch01.sent")
    sent.reveal(nbytes, parameters=9_418)  # the answers file has "{parameters:,} parameters of 4 bytes."

With a live front end the question has a form, and the answer is kept in `.dtlearn/predictions.json` beside the
notebook, so that a second run shows it. A headless run shows the question only and reads no file of the learner's: its
output is always the same, and what happened is folded in it.
"""

import hashlib
import html
import re
from collections.abc import Mapping
from typing import Self

from dtlearn.viz.live_widget import show_widget
from dtlearn.viz.picture import Picture
from dtlearn.viz.units import format_quantity, format_ratio, parse_quantity

from ..frontend import is_live
from .answers import explanation, find_answer
from .form import form
from .kept import keep, kept


class Prediction:
    """One question and the learner's answer to it.

    Attributes:
        question: what is asked.
        unit: unit of a number; "" for a choice.
        options: for a choice, the text or picture behind each letter; empty for a number.
        id: of its entry in the answers file, such as "ch01.late".
        answer: the committed number or letter; None before that.
    """

    def __init__(self, question: str, unit: str, options: Mapping[str, str | Picture], id: str) -> None:
        self.question, self.unit, self.options, self.id = question, unit, dict(options), id
        self.answer: float | str | None = None
        self.revealed = False
        text = "\n".join([question, unit, *self.options])
        self.key = hashlib.sha256(text.encode()).hexdigest()[:16]

    def commit(self, answer: float | str) -> str:
        """Take an answer: a number, its text such as "4 MB", or the letter of a choice. The form does this too.

        Returns:
            A sentence on what was committed, and on whether it could be kept for the next run.

        Raises:
            ValueError: the answer is no number in this unit, no letter of the choice, or comes after `reveal`.
        """
        if self.revealed:
            raise ValueError("the answer is already on the page; run the question's cell again to predict anew")
        if self.options:
            if answer not in self.options:
                raise ValueError(f"{answer!r} is not an option; choose one of {', '.join(self.options)}")
            self.answer = answer
        else:
            self.answer = parse_quantity(answer, self.unit) if isinstance(answer, str) else float(answer)
        said = f"Committed: {self.words(self.answer)}. You can change it until the answer is shown."
        return f"{said} {keep(self.key, self.question, self.answer)}".rstrip() if is_live() else said

    def reveal(self, actual: float | str | None = None, **values: object) -> None:
        """Show the prediction beside what happened; folded away from whoever has not committed anything.

        Args:
            actual: the number, in this question's unit, or the letter of the right option; None: the letter in the
                answers file.
            values: what the explanation in the answers file names: `flop=...` for "{flop:.2e}"; `actual` is there too.

        Raises:
            ValueError: `actual` or `values` do not fit the question, or it has no entry in the answers file.
        """
        from IPython.display import display

        entry = find_answer(self.id)
        actual = entry.get("choice") if actual is None else actual
        if actual is None:
            raise ValueError("reveal() needs the outcome")
        paragraphs = [self.verdict(actual), explanation(self.id, entry, {"actual": actual, **values})]
        rich, plain = "".join(f"<p>{_rich(p)}</p>" for p in paragraphs), "\n".join(paragraphs)
        if self.answer is not None:
            self.revealed = True
        else:
            lead = "<p>No prediction yet: commit one above, then run this cell again.</p>" if is_live() else ""
            rich = f"{lead}<details><summary>Show what happened without a prediction</summary>{rich}</details>"
            plain = "What happened is folded here, so that you can predict it first."
        display({"text/html": f'<div role="note">{rich}</div>', "text/plain": plain}, raw=True)

    def verdict(self, actual: float | str) -> str:
        """The sentence that sets prediction and outcome side by side."""
        if self.options:
            if actual not in self.options:
                raise ValueError(f"{actual!r} is not an option; the options are {', '.join(self.options)}")
        elif isinstance(actual, str):
            raise ValueError(f"the outcome must be a number of {self.unit or 'the question'}, not the text {actual!r}")
        was = self.words(actual)
        if self.answer is None:
            return f"It was {was}."
        if self.options:
            same = self.answer == actual
            return f"You chose {self.words(self.answer)}" + (", and so it was." if same else f"; it was {was}.")
        said, value = float(self.answer), float(actual)
        start = f"You said {self.words(said)}, it was {was}"
        if said == value:
            return f"You said {self.words(said)}, and so it was."
        if said * value <= 0:
            return f"{start}."
        return f"{start}: {format_ratio(value / said)} what you said."

    def words(self, answer: float | str) -> str:
        """An answer with its unit, or with the text of its letter."""
        if not self.options:
            return format_quantity(float(answer), self.unit)
        option = self.options[str(answer)]
        text = option.alt if isinstance(option, Picture) else option
        return f"{answer} ({text.rstrip('.')})"

    def shown(self) -> Self:
        """This question, shown in the running cell; with a form where a person can fill it in."""
        from IPython.display import display

        rows = [f"{k}: {o.alt if isinstance(o, Picture) else o}" for k, o in self.options.items()]
        items = "".join(f"<li>{_rich(row)}</li>" for row in rows)
        rich = f"<p><strong>Predict.</strong> {_rich(self.question)}</p>"
        rich += f'<ul style="list-style:none">{items}</ul>' if items else ""
        plain = "\n".join([f"Predict. {self.question}", *(f"  {row}" for row in rows)])
        if not is_live():  # the form says it otherwise
            ask = f"the number in {self.unit}" if self.unit else "a number"
            ask = f"one of {', '.join(self.options)}" if self.options else ask
            note = f"Commit {ask} before you read on: run this cell for a form to fill in."
            rich, plain = f"{rich}<p><em>{note}</em></p>", f"{plain}\n{note}"
        display({"text/html": rich, "text/plain": plain}, raw=True)
        for letter, option in self.options.items():
            if isinstance(option, Picture):
                display({"text/markdown": f"**{letter}**", "text/plain": f"{letter}:"}, raw=True)
                option.display()
        if is_live():
            self.answer = _kept_answer(self)
            show_widget(form(self), "for a form to fill in")
        return self


def _rich(text: str) -> str:
    """A text as HTML, `code` as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _kept_answer(p: Prediction) -> float | str | None:
    """The kept answer to this question, if it still fits it."""
    answer = kept(p.key)
    if p.options:
        return answer if isinstance(answer, str) and answer in p.options else None
    return float(answer) if isinstance(answer, int | float) else None


class _Predict:
    """`predict(...)` asks for a number, `predict.choice(...)` for one of several texts or pictures."""

    def __call__(self, question: str, unit: str = "", *, id: str) -> Prediction:
        """Ask for a number and show the question in the running cell.

        Args:
            question: what is asked.
            unit: "bytes" and "seconds" are read with their prefixes ("4 MB", "20 ms"); others are shown as they are.
            id: of its entry in the answers file, such as "ch01.length".

        Returns:
            The question; call its `reveal` in a later cell.
        """
        return Prediction(question, unit, {}, id).shown()

    def choice(self, question: str, options: Mapping[str, str | Picture], *, id: str) -> Prediction:
        """Ask for one of several texts or pictures and show the question in the running cell.

        Args:
            question: what is asked.
            options: a text or a `dtlearn.viz.Picture` for each letter, such as {"A": ..., "B": ...}.
            id: of its entry in the answers file, which says the right letter.

        Returns:
            The question; call its `reveal` in a later cell.

        Raises:
            ValueError: fewer than two options, or a figure without alt text.
        """
        if len(options) < 2:
            raise ValueError("a choice needs at least two options")
        for letter, option in options.items():
            if not isinstance(option, str | Picture):
                raise ValueError(f"option {letter}: give a text, or Picture(figure, alt=...) for a figure")
        return Prediction(question, "", options, id).shown()


predict = _Predict()
