"""A job on real ranks that die at seeded moments, and its life read from what they wrote down."""

import pytest

from dtlearn.production.faults.story import StoryEvent
from dtlearn.production.goodput.life import LifeSpan
from dtlearn.production.goodput.real import draw_deaths, life_of, live


def test_deaths_are_seeded():
    assert draw_deaths(3, 2.0, 5, 4) == draw_deaths(3, 2.0, 5, 4) != draw_deaths(3, 2.0, 6, 4)
    assert {rank for rank, _ in draw_deaths(3, 2.0, 5, 60)} == {0, 1, 2}


def event(seconds: float, what: str, step: int | None = None, attempt: int = 0, rank: int = 0) -> StoryEvent:
    return StoryEvent(seconds, rank, attempt, what, step)


FIRST = [
    event(1.0, "resumed", 0),
    *(event(1.0 + 0.5 * k, "step", k - 1) for k in (1, 2)),
    event(2.0, "saving", 2),
    event(2.2, "saved", 2),
    event(2.7, "step", 2),
    event(2.9, "fault", rank=1),
]


def test_what_came_after_the_last_save_is_lost():
    events = [
        *FIRST,
        event(4.0, "resumed", 2, 1),
        *(event(4.5 + 0.5 * k, "step", 2 + k, 1) for k in (0, 1)),
        event(5.0, "saving", 4, 1),
        event(5.2, "saved", 4, 1),
        event(5.2, "finished", 4, 1),
    ]
    life = life_of(events, 2)
    assert life.failures == 1
    assert life.spans == (
        LifeSpan("training", 1.0, 2.0, 2),
        LifeSpan("save", 2.0, 2.2),
        LifeSpan("lost", 2.2, 2.9, 1),
        LifeSpan("restart", 2.9, 4.0),
        LifeSpan("training", 4.0, 5.0, 2),
        LifeSpan("save", 5.0, 5.2),
    )


def test_a_save_that_was_on_the_disk_before_the_death_counts_although_nobody_heard_of_it():
    events = [*FIRST[:4], event(2.3, "fault", rank=1), event(4.0, "resumed", 2, 1), event(4.5, "step", 2, 1)]
    kinds = [span.kind for span in life_of([*events, event(4.6, "finished", 3, 1)], 2).spans]
    assert kinds == ["training", "save", "lost", "restart", "training"]
    unsaved = [*events[:5], event(4.0, "resumed", 0, 1), event(4.5, "finished", 0, 1)]
    assert life_of(unsaved, 2).spans[0] == LifeSpan("lost", 1.0, 2.3, 2)


@pytest.mark.parametrize("fault", [1.9, 2.1, 2.3])
def test_a_save_between_the_word_of_a_death_and_the_death_counts_too(fault):
    """The rank that will die says so first: the word comes before a save, in it, or behind it."""
    events = [*FIRST[:5], event(fault, "fault", rank=1), event(4.0, "resumed", 2, 1), event(4.5, "step", 2, 1)]
    spans = life_of([*events, event(4.6, "finished", 3, 1)], 2).spans
    assert spans[:2] == (LifeSpan("training", 1.0, 2.0, 2), LifeSpan("save", 2.0, 2.2))
    assert spans[2] == LifeSpan("lost", 2.2, max(2.2, fault), 0)
    assert sum(span.steps for span in spans if span.kind == "training") == 3


@pytest.mark.slow
def test_a_real_job_that_is_killed_again_and_again_makes_all_its_steps_with_the_same_losses():
    options = {"steps": 60, "step_seconds": 0.01, "save_seconds": 0.03, "save_every": 15}
    job = live(**options, mtbf=0.35, seed=2, max_failures=3)
    assert job.error == "" and job.life.failures >= 1
    calm = live(**options, mtbf=1000.0, max_failures=1)
    assert calm.life.failures == 0
    assert job.losses == calm.losses  # the same number of ranks: to the last bit
    assert sum(span.steps for span in job.life.spans if span.kind == "training") == 60
    assert sum(span.kind == "restart" for span in job.life.spans) == job.life.failures
    assert 0 < job.life.goodput < 1 and 0 < job.expected < 1


def test_times_that_are_none_are_refused_before_anything_starts():
    with pytest.raises(ValueError, match="positive times"):
        live(save_seconds=0.0)
