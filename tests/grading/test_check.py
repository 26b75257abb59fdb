import pytest
import torch

from dtlearn.grading.check import Case, Check


def inputs(case):
    return [{}] * case.world_size


class Nested:
    @staticmethod
    def on_rank(answer):
        return answer() + 1


def test_the_driver_is_the_text_of_on_rank_alone():
    text = Check(Nested.on_rank, inputs, lambda case, given: []).driver()
    assert text.endswith("return answer() + 1\n") and "class Nested" not in text


def test_random_numbers_repeat_and_differ_between_cases():
    def draw(name="a", world_size=2, seed=1, salt=0):
        return torch.rand(1, generator=Case(name, world_size, seed).generator(salt)).item()

    assert draw() == draw()
    assert len({draw(), draw("b"), draw(world_size=3), draw(seed=2), draw(salt=1)}) == 5


def test_every_case_at_a_world_size():
    check = Check(Nested.on_rank, inputs, lambda case, given: [], cases={"a": {"n": 1}, "b": {}})
    made = check.all_cases(3, seed=7)
    assert [(c.name, c.world_size, c.seed, dict(c.params)) for c in made] == [("a", 3, 7, {"n": 1}), ("b", 3, 7, {})]


def test_a_check_that_every_answer_would_pass_is_refused():
    with pytest.raises(ValueError, match="every answer would pass"):
        Check(Nested.on_rank, inputs, None)
