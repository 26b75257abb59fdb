"""A wrong value that some rank was given is named."""

import torch

from dtlearn.grading.judging.compare import difference
from dtlearn.grading.judging.given_values import mistaken_for

GIVEN = [{"parts": [torch.tensor([10.0 * r + d, 1.0]) for d in range(3)], "root": 1} for r in range(3)]
PARTS = [given["parts"] for given in GIVEN]


def near(right, have):
    return not difference(right, have, 1e-5, 1e-6)


def test_what_it_is_and_what_it_should_be():
    right = [PARTS[s][0] for s in range(3)]
    text = mistaken_for(right, [PARTS[0][0], PARTS[1][2], PARTS[2][0]], GIVEN, near)
    assert text == "the result[1] is rank 1's parts[2]; it should be rank 1's parts[0]"
    assert mistaken_for(PARTS[0][0], PARTS[2][0], GIVEN, near).startswith("the result is rank 2's parts[0]; ")


def test_what_was_to_become_a_sum_and_did_not():
    text = mistaken_for(torch.full((2,), 7.0), PARTS[2][0], GIVEN, near)
    assert text == "the result is rank 2's parts[0], as that rank was given it"


def test_nothing_is_said_of_what_was_not_given_or_is_not_unique():
    assert mistaken_for(PARTS[0][0], torch.full((2,), 7.0), GIVEN, near) == ""
    assert mistaken_for(PARTS[0][0], PARTS[1][0], [*GIVEN, GIVEN[1]], near) == ""
    assert mistaken_for(torch.zeros(0), torch.zeros(0), GIVEN, near) == ""
    assert mistaken_for(1.5, 2.5, GIVEN, near) == ""
