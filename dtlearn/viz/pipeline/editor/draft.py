"""A schedule while it is edited: words in rows, one row for each rank. Any word may be typed, nonsense too.

Every change gives a new `Draft`; `History` keeps the old ones. Nothing here needs a widget, and nothing raises for what
a person may type.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from dtlearn.pipeline_parallel import SCHEDULES, format_schedule, make_schedule
from dtlearn.pipeline_parallel.text import Rows, rows_of, text_of


@dataclass(frozen=True)
class Recipe:
    """What a schedule was made from.

    Attributes:
        name: of a generator.
        num_ranks: p.
        num_microbatches: m.
        chunks: v, stages on each rank. It counts only for a kind that leaves the choice, and there 1 becomes 2.
    """

    name: str
    num_ranks: int
    num_microbatches: int
    chunks: int = 1

    @property
    def has_chunks(self) -> bool:
        """Whether the kind leaves the choice of chunks."""
        return SCHEDULES[self.name].shape == "loop"


@dataclass(frozen=True)
class TypedTimes:
    """Milliseconds as they were typed: one number for a p-th of the model, or one for each stage.

    Attributes:
        forward, inputs, weights: of F, I and W; a whole backward pass B takes I and W together.
        transfer: from the end of an action to the moment at which another rank has its result.
    """

    forward: str = "20"
    inputs: str = "20"
    weights: str = "20"
    transfer: str = "0"


@dataclass(frozen=True)
class Draft:
    """All that a person can change.

    Attributes:
        text: the schedule, a line for each rank.
        times: the stage times.
        recipe: what the text was made from, before it was edited.
    """

    text: str
    times: TypedTimes = field(default_factory=TypedTimes)
    recipe: Recipe | None = None

    @classmethod
    def from_recipe(cls, recipe: Recipe, times: TypedTimes | None = None) -> Draft:
        """The draft of a schedule that a generator makes.

        Raises:
            ValueError: the generator makes none of that size.
        """
        chunks = max(2, recipe.chunks) if recipe.has_chunks else None
        schedule = make_schedule(recipe.name, recipe.num_ranks, recipe.num_microbatches, chunks)
        recipe = replace(recipe, chunks=schedule.num_stages // schedule.num_ranks)
        return cls(format_schedule(schedule), times or TypedTimes(), recipe)

    @property
    def rows(self) -> Rows:
        """The words of each rank."""
        return rows_of(self.text)

    def with_rows(self, rows: Rows) -> Draft:
        """The same draft with other words."""
        return replace(self, text=text_of(rows))

    def shifted(self, rank: int, place: int, by: int) -> tuple[Draft, tuple[int, int]]:
        """Let a word change places with its neighbour on the same rank.

        Args:
            rank, place: of the word.
            by: -1, earlier, or 1, later.

        Returns:
            The new draft, and the word's rank and place in it; all as before at the end of a row.
        """
        rows, other = self.rows, place + by
        if not (self.has(rank, place) and self.has(rank, other)):
            return self, (rank, place)
        row = list(rows[rank])
        row[place], row[other] = row[other], row[place]
        return self.with_rows((*rows[:rank], tuple(row), *rows[rank + 1 :])), (rank, other)

    def carried(self, rank: int, place: int, target: int) -> tuple[Draft, tuple[int, int]]:
        """Move a word to another rank, to the same place or, if that rank has fewer words, to its end.

        Args:
            rank, place: of the word.
            target: the rank that gets it.

        Returns:
            As `shifted`; all as before if there is no such word or rank.
        """
        rows = self.rows
        if not self.has(rank, place) or not 0 <= target < len(rows) or target == rank:
            return self, (rank, place)
        new, word = [list(row) for row in rows], rows[rank][place]
        del new[rank][place]
        place = min(place, len(new[target]))
        new[target].insert(place, word)
        return self.with_rows(tuple(map(tuple, new))), (target, place)

    def dropped(self, rank: int, words: tuple[str, ...]) -> Draft:
        """Give a rank other words: a word that came to it from another rank's row is taken out there.

        A row of tags tells only what it holds after a word was dragged into it. An action is done once, so the word is
        moved and not copied.
        """
        rows = [list(row) for row in self.rows]
        came = Counter(words) - Counter(rows[rank])
        for other, row in enumerate(rows):
            for word in (word for word in came.elements() if other != rank):
                if word in row:
                    row.remove(word)
                    came[word] -= 1
        rows[rank] = list(words)
        return self.with_rows(tuple(map(tuple, rows)))

    def has(self, rank: int, place: int) -> bool:
        """Whether there is a word at this place."""
        rows = self.rows
        return 0 <= rank < len(rows) and 0 <= place < len(rows[rank])


class History:
    """The drafts of a session, for undo and redo.

    Attributes:
        draft: the present one.
    """

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._before: list[Draft] = []
        self._after: list[Draft] = []

    def change(self, draft: Draft) -> bool:
        """Make this the present draft; returns False, and keeps nothing, if it is the same."""
        if draft == self.draft:
            return False
        self._before.append(self.draft)
        self._after.clear()
        self.draft = draft
        return True

    def undo(self) -> bool:
        """Go back by one change; returns False if there is none."""
        return self._step(self._before, self._after)

    def redo(self) -> bool:
        """Take the last undo back; returns False if there is none."""
        return self._step(self._after, self._before)

    @property
    def can_undo(self) -> bool:
        """Whether there is a change to take back."""
        return bool(self._before)

    @property
    def can_redo(self) -> bool:
        """Whether there is an undo to take back."""
        return bool(self._after)

    def _step(self, source: list[Draft], target: list[Draft]) -> bool:
        if not source:
            return False
        target.append(self.draft)
        self.draft = source.pop()
        return True
