"""What the checks of exercises 5 to 8 of chapter 8 expect, against values worked out by hand."""

import torch

from dtlearn.checks.ch08_memory import checkpoint, selective


def test_what_is_computed_again_follows_its_inputs():
    rows = [("a", [], True, 8), ("b", ["a"], False, 9), ("c", ["b"], True, 2), ("d", ["c"], False, 9)]
    operations = [
        {"name": n, "bytes": size, "flops": 1, "inputs": read, "saved": saved} for n, read, saved, size in rows
    ]
    # Nothing; c alone leaves a; a alone leaves b and c; both.
    assert selective.best(operations, [1, 2, 8, 10]) == [(3, 0), (1, 2), (1, 2), (0, 10)]


def test_the_random_state_of_the_judge_stays_as_it_is():
    before = torch.get_rng_state()
    case = checkpoint.CHECK.all_cases(1, seed=3)[5]
    given = checkpoint.CHECK.inputs(case)
    checkpoint.payload(case, given)
    checkpoint.expected(case, given)
    assert case.name == "random numbers" and torch.equal(torch.get_rng_state(), before)
