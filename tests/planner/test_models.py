"""Models against the numbers of parameters that their papers print."""

import pytest

from dtlearn.planner.models import MORE_MODELS, find_model, model_of_count, parse_count

PRINTED = {  # billions, from the papers and model cards in the head of `models`
    "BLOOM 176B": 176.247,
    "GPT-3 175B": 174.6,
    "MT-NLG 530B": 529.6,
    "Megatron 1T": 1008.0,
    "OPT 175B": 174.6,
    "Gopher 280B": 280.0,
    "GPT-NeoX 20B": 20.55,
    "Llama 1 65B": 65.2,
    "Llama 2 70B": 68.98,
    "Llama 3 405B": 405.85,
    "MPT 30B": 29.975,
    "T-NLG 17B": 17.2,
}


@pytest.mark.parametrize(("name", "billions"), PRINTED.items())
def test_parameters_are_those_that_are_printed(name, billions):
    tolerance = 0.09 if name.startswith("Gopher") else 0.015  # Gopher has relative positions, which are weights too
    assert MORE_MODELS[name].num_parameters / 1e9 == pytest.approx(billions, rel=tolerance)


@pytest.mark.parametrize(
    ("text", "name"),
    [("bloom", "BLOOM 176B"), ("gpt-3", "GPT-3 175B"), ("llama-3-8b", "Llama 3 8B"), ("opt", "OPT 175B")],
)
def test_a_name_is_found_as_it_is_written(text, name):
    assert find_model(text).name == name


def test_a_number_of_parameters_is_a_model_of_about_that_size():
    for count in (1e9, 3e9, 20e9, 100e9, 2e12):
        assert model_of_count(count).num_parameters == pytest.approx(count, rel=0.25)
    assert find_model("405B").name == "Llama 3 405B"
    assert find_model("2e9").hidden % 128 == 0


@pytest.mark.parametrize(("text", "count"), [("70B", 70e9), ("1.3e9", 1.3e9), ("530 billion", 530e9), ("1T", 1e12)])
def test_counts_are_read(text, count):
    assert parse_count(text) == count


@pytest.mark.parametrize("count", [float("inf"), float("nan"), 1e30, -1e9, 0.0])
def test_a_count_that_is_none_of_a_model_is_refused(count):
    with pytest.raises(ValueError, match="expected 1e6 to 1e15, such as 20B"):
        model_of_count(count)


@pytest.mark.parametrize("text", ["1e400", "1e30", "100", "0B"])
def test_a_written_count_that_is_none_of_a_model_is_refused(text):
    with pytest.raises(ValueError, match="expected 1e6 to 1e15, such as 20B"):
        find_model(text)


@pytest.mark.parametrize("text", ["9e9e9", "1.2.3B", "e9", "inf", "nan", "-5B"])
def test_what_only_looks_like_a_number_is_an_unknown_model(text):
    with pytest.raises(ValueError, match="unknown model"):
        find_model(text)


def test_unknown_and_ambiguous_names_are_told_apart():
    with pytest.raises(ValueError, match=r"unknown model 'blom'.*did you mean"):
        find_model("blom")
    with pytest.raises(ValueError, match="may be Llama 2 7B, Llama 2 13B, Llama 2 70B"):
        find_model("llama-2")
    with pytest.raises(ValueError, match=r"expected 1e6 to 1e15"):
        model_of_count(10)
