"""What the checks of exercises 5 to 8 of chapter 8 expect, against the package and runs without an answer."""

from types import SimpleNamespace

import pytest
import torch

from dtlearn.checks.ch08_memory import checkpoint, choose_k, offload, selective
from dtlearn.checks.ch08_memory._whole_chain import whole
from dtlearn.grading.judging.compare import difference
from dtlearn.memory import segment_peak


def cases(module, ranks=2):
    """The cases of a check, each with its inputs."""
    return [(case, module.CHECK.inputs(case)) for case in module.CHECK.all_cases(ranks, seed=3)]


def test_the_peaks_are_those_of_the_package():
    for _, given in cases(choose_k):
        for job in given[0]["jobs"]:
            sizes = job["num_layers"], job["layer_bytes"], job["input_bytes"]
            peaks = {choice.k: choice.peak for choice in choose_k.choices(job)}
            assert peaks == {k: segment_peak(sizes[0], k, *sizes[1:]) for k in peaks}


@pytest.mark.parametrize("ranks", [2, 4])
def test_each_mistake_with_k_shows_in_some_case(ranks):
    shows: dict[str, bool] = {}
    for case, given in cases(choose_k, ranks):
        right = choose_k.expected(case, given)
        for mistake in choose_k.mistakes(case, given):
            shows[mistake.text] = shows.get(mistake.text, False) or mistake.values != right
    assert [text for text, seen in shows.items() if not seen] == []


def test_one_graph_of_all_ranks_has_the_values_of_each():
    for case, given in cases(checkpoint, ranks=1):
        (right,) = whole(given)
        plain = checkpoint.on_rank(lambda function, *inputs: function(*inputs), **given[0])
        names = ("y", "labels", "between", "gradients", "x")
        assert not any(difference(right[name], plain[name], 1e-5, 1e-6) for name in names), case.name
        assert checkpoint._judged(right, plain, given[0])[0] == "DTL-RULE-KEPT"


def test_offload_changes_memory_and_not_gradients():
    for case, given in cases(offload, ranks=1):
        moved, plain = (offload.on_rank(answer, **given[0]) for answer in (offload.offload, offload.as_it_is))
        assert not difference(plain[0]["gradients"], moved[0]["gradients"], 1e-6, 1e-7), case.name
        if len(plain) > 1:  # in the last step the host forgets signs: who computes with its copies, shows it
            assert difference(plain[-1]["gradients"], moved[-1]["gradients"], 1e-4, 1e-6), case.name
        for one, without in zip(moved, plain, strict=True):
            assert one["held"] < without["held"] / 5 and one["left"] == 0
            assert offload._judged(one, one, without, 1) is None
            assert offload._judged(without, one, without, 1)[0] == "DTL-RULE-STAYED"


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
    offload.verify(SimpleNamespace(), [], [], None)
    assert torch.equal(torch.get_rng_state(), before)
