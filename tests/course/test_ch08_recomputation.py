"""What the checks of exercises 5 to 8 of chapter 8 expect, against the package and runs without an answer."""

import torch

from dtlearn.checks.ch08_memory import checkpoint, selective


def cases(module, ranks=2):
    """The cases of a check, each with its inputs."""
    return [(case, module.CHECK.inputs(case)) for case in module.CHECK.all_cases(ranks, seed=3)]


def test_each_mistake_of_a_choice_shows_in_some_case():
    jobs = [job for _, given in cases(selective) for i in given for job in i["jobs"]]
    for text, (_, choose) in selective.mistakes().items():
        assert any(choose(j["operations"], j["budget"]) != selective._best(**j) for j in jobs), text


def test_what_is_computed_again_follows_its_inputs():
    rows = [("a", [], True), ("b", ["a"], False), ("c", ["b"], True), ("d", ["c"], False)]
    operations = [{"name": n, "bytes": 1, "flops": 1, "inputs": read, "saved": saved} for n, read, saved in rows]
    assert selective.again(operations, set()) == ["a", "b", "c"]
    assert selective.again(operations, {"c"}) == ["a"]
    assert selective.again(operations, {"b"}) == ["a", "c"]


def test_the_random_states_of_the_judge_stay_as_they_are():
    before = torch.get_rng_state()
    case, given = cases(checkpoint, ranks=1)[1]
    checkpoint.payload(case, given)
    checkpoint.expected(case, given)
    assert torch.equal(torch.get_rng_state(), before)
