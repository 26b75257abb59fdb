"""Predict first: the learner commits a number or a choice, and a later cell shows it beside what happened.

    p = predict("How many bytes does one all-reduce of the gradients send?", kind="number", unit="bytes")
    p.reveal(37_672, explain="9,418 parameters of 4 bytes.")

With a live front end the question has a form, and the answer is kept in `.dtlearn/predictions.json` beside the
notebook, so that a second run shows it. A headless run shows the question only and reads no file: its output is
always the same.
"""

from __future__ import annotations

import hashlib
import html
from collections.abc import Mapping
from typing import Any

from dtlearn.notebook.frontend import is_live
from dtlearn.notebook.kept_predictions import keep, kept
from dtlearn.viz.picture import Picture
from dtlearn.viz.units import format_quantity, format_ratio, parse_quantity


class Prediction:
    """One question and the learner's answer to it.

    Attributes:
        question: what is asked.
        unit: unit of a number; "" for a choice.
        options: for a choice, the text or picture behind each letter; empty for a number.
        answer: the committed number or letter; None before that.
    """

    def __init__(self, question: str, unit: str, options: Mapping[str, str | Picture]) -> None:
        self.question, self.unit, self.options = question, unit, dict(options)
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
        said = f"Committed: {self._words(self.answer)}. You can change it until the answer is shown."
        return f"{said} {keep(self.key, self.question, self.answer)}".rstrip() if is_live() else said

    def reveal(self, actual: float | str, explain: str = "") -> None:
        """Show the prediction beside what happened.

        A learner at a live front end who has not committed anything yet gets the outcome folded away, so that running
        all cells at once spoils nothing.

        Args:
            actual: the number, in this question's unit, or the letter of the right option.
            explain: one or two sentences on why.

        Raises:
            ValueError: `actual` does not fit the question.
        """
        from IPython.display import display

        paragraphs = [self.verdict(actual), explain] if explain else [self.verdict(actual)]
        rich = "".join(f"<p>{html.escape(p)}</p>" for p in paragraphs)
        if self.answer is None and is_live():
            rich = (
                "<p>No prediction yet: commit one above, then run this cell again.</p>"
                f"<details><summary>Show what happened without a prediction</summary>{rich}</details>"
            )
        else:
            self.revealed = True
        bundle = {"text/html": f'<div role="note">{rich}</div>', "text/plain": "\n".join(paragraphs)}
        display(bundle, raw=True)

    def verdict(self, actual: float | str) -> str:
        """The sentence that sets prediction and outcome side by side."""
        if self.options:
            if actual not in self.options:
                raise ValueError(f"{actual!r} is not an option; the options are {', '.join(self.options)}")
        elif isinstance(actual, str):
            raise ValueError(f"the outcome must be a number of {self.unit or 'the question'}, not the text {actual!r}")
        was = self._words(actual)
        if self.answer is None:
            return f"It was {was}. No prediction was committed."
        if self.options:
            same = self.answer == actual
            return f"You chose {self._words(self.answer)}" + (", and so it was." if same else f"; it was {was}.")
        said, value = float(self.answer), float(actual)
        start = f"You said {self._words(said)}, it was {was}"
        if said == value:
            return f"You said {self._words(said)}, and so it was."
        if said * value <= 0:
            return f"{start}."
        return f"{start}: {format_ratio(value / said)} what you said."

    def _words(self, answer: float | str) -> str:
        if not self.options:
            return format_quantity(float(answer), self.unit)
        option = self.options[str(answer)]
        text = option.alt if isinstance(option, Picture) else option
        return f"{answer} ({text.rstrip('.')})"

    def display(self) -> None:
        """Show the question, with a form where a person can fill it in."""
        from IPython.display import display

        ask = f"the number in {self.unit}" if self.unit else "a number"
        if self.options:
            ask = f"one of {', '.join(self.options)}"
        rows = [f"{k}: {o.alt if isinstance(o, Picture) else o}" for k, o in self.options.items()]
        items = "".join(f"<li>{html.escape(row)}</li>" for row in rows)
        rich = f"<p><strong>Predict.</strong> {html.escape(self.question)}</p>"
        rich += f'<ul style="list-style:none">{items}</ul>' if items else ""
        plain = "\n".join([f"Predict. {self.question}", *(f"  {row}" for row in rows)])
        note = f"Commit {ask} before you read on: run this cell for a form to fill in."
        display({"text/html": f"{rich}<p><em>{note}</em></p>", "text/plain": f"{plain}\n{note}"}, raw=True)
        for letter, option in self.options.items():
            if isinstance(option, Picture):
                display({"text/markdown": f"**{letter}**", "text/plain": f"{letter}:"}, raw=True)
                option.display()
        if is_live():
            self.answer = _kept_answer(self)
            self._display_form()

    def _display_form(self) -> None:
        try:
            import ipywidgets
        except ImportError:
            print("ipywidgets is not installed, so there is no form: write p.commit(...) in a cell instead.")
            return
        from IPython.display import display

        display(form(self, ipywidgets))


def form(p: Prediction, widgets: Any) -> Any:
    """The form of a question: a field or a row of radio buttons, a button, and a line that says what happened."""
    wide = {"description_width": "initial"}
    field: Any
    if p.options:
        field = widgets.RadioButtons(
            options=list(p.options), value=p.answer, description="Your choice:", style=wide, orientation="horizontal"
        )
    else:
        text = "" if p.answer is None else f"{p.answer:,}".removesuffix(".0")
        label = f"Your number ({p.unit}):" if p.unit else "Your number:"
        field = widgets.Text(value=text, description=label, style=wide, continuous_update=False)
    button = widgets.Button(description="Commit", button_style="primary", tooltip="Commit this prediction")
    line = widgets.HTML()

    def say(text: str) -> None:
        line.value = f'<span role="status">{html.escape(text)}</span>'

    def on_commit(_: Any) -> None:
        if field.value in (None, ""):
            say("Nothing to commit yet: choose an option." if p.options else "Nothing to commit yet: write a number.")
            return
        try:
            say(p.commit(field.value))
        except ValueError as error:
            say(f"Not committed: {error}")

    button.on_click(on_commit)
    if p.answer is not None:
        say(f"Committed earlier: {p._words(p.answer)}. You can change it until the answer is shown.")
    return widgets.VBox([field, button, line])


def _kept_answer(p: Prediction) -> float | str | None:
    """The kept answer to this question, if it still fits it."""
    answer = kept(p.key)
    if p.options:
        return answer if isinstance(answer, str) and answer in p.options else None
    return float(answer) if isinstance(answer, int | float) else None


class _Predict:
    """`predict(...)` asks for a number, `predict.choice(...)` for one of several texts or pictures."""

    def __call__(self, question: str, kind: str = "number", unit: str = "") -> Prediction:
        """Ask for a number and show the question in the running cell.

        Args:
            question: what is asked.
            kind: "number"; for a choice call `predict.choice`.
            unit: "bytes" and "seconds" are read with their prefixes ("4 MB", "20 ms"); others are shown as they are.

        Returns:
            The question; call its `reveal` in a later cell.

        Raises:
            ValueError: another kind.
        """
        if kind != "number":
            raise ValueError(f"kind={kind!r}: predict() asks for a number; use predict.choice() for a choice")
        return self._shown(Prediction(question, unit, {}))

    def choice(self, question: str, options: Mapping[str, str | Picture]) -> Prediction:
        """Ask for one of several texts or pictures and show the question in the running cell.

        Args:
            question: what is asked.
            options: a text or a `dtlearn.viz.Picture` for each letter, such as {"A": ..., "B": ...}.

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
        return self._shown(Prediction(question, "", options))

    @staticmethod
    def _shown(p: Prediction) -> Prediction:
        p.display()
        return p


predict = _Predict()
