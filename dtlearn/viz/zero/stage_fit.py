"""What fits: the bytes of every stage on one GPU against its memory, and the answer for one stage in the title."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from ..memory.stacked_bars import stacked_bars


def stage_fit(
    stages: Mapping[str, Mapping[str, float]],
    chosen: str,
    gpu: str,
    capacity: float,
    what: str,
    label: str = "",
) -> Figure:
    """Draw a bar for each stage; a line is what the GPU has, and the chosen stage is marked.

    Args:
        stages: {stage: {category: bytes on each GPU}}.
        chosen: the stage that the title speaks of.
        gpu: its name.
        capacity: its bytes.
        what: what is trained on how many GPUs, for the title.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: the chosen stage is none of them.
    """
    if chosen not in stages:
        raise ValueError(f"{chosen!r} is none of the stages {', '.join(map(repr, stages))}")
    fitting = [name for name, parts in stages.items() if sum(parts.values()) <= capacity]
    says = "fits" if chosen in fitting else f"does not fit; {fitting[0]} would" if fitting else "no stage fits"
    title = f"{what}, {chosen}: {says}" if chosen in fitting or fitting else f"{what}: {says}"
    marked = {f"> {name}" if name == chosen else name: parts for name, parts in stages.items()}
    return stacked_bars(
        marked,
        {f"{gpu}: {capacity / 1e9:.1f} GB": capacity},
        title=title,
        label=label,
        notes={
            shown: "fits" if name in fitting else "does not fit" for shown, name in zip(marked, stages, strict=True)
        },
    )
