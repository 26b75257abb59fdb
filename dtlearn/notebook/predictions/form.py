"""The form of a question: a field or a row of radio buttons, a button, and a line that says what came of it."""

import html
from typing import Any

_EXAMPLES = {"bytes": "such as 4 MB", "seconds": "such as 20 ms"}


def form(p: Any) -> Any:
    """The form of a `Prediction`. Enter, or leaving the field, commits a number too."""
    import ipywidgets as widgets

    wide = {"description_width": "initial"}
    field: Any
    if p.options:
        field = widgets.RadioButtons(
            options=list(p.options),
            value=p.answer,
            description="Your prediction:",
            style=wide,
            orientation="horizontal",
        )
    else:
        field = widgets.Text(
            value="" if p.answer is None else f"{p.answer:,}".removesuffix(".0"),
            description=f"Your prediction, in {p.unit}:" if p.unit else "Your prediction:",
            placeholder=_EXAMPLES.get(p.unit, "a number, then Enter"),
            style=wide,
            layout=widgets.Layout(width="30em", max_width="100%"),
            continuous_update=False,  # a change is then told on Enter, and when the field is left
        )
    button = widgets.Button(description="Commit", button_style="primary", tooltip="Commit this prediction")
    line = widgets.HTML()

    def say(text: str) -> None:
        line.value = f'<span role="status">{html.escape(text)}</span>' if text else ""

    def commit(_: Any) -> None:
        if field.value in (None, ""):
            say("Nothing to commit yet: choose an option." if p.options else "Nothing to commit yet: write a number.")
            return
        try:
            say(p.commit(field.value))
        except ValueError as error:
            say(f"Not committed: {error}")

    button.on_click(commit)
    field.observe((lambda _: say("")) if p.options else commit, names="value")
    if p.answer is not None:
        say(f"Committed earlier: {p.words(p.answer)}. You can change it until the answer is shown.")
    return widgets.VBox([field, widgets.HBox([button, line])])
