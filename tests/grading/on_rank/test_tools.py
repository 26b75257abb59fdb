import torch

from dtlearn.grading.on_rank.tools import has_own_memory, holds, refusal_naming


def test_what_refers_to_a_whole_tensor_or_a_copy_of_it_holds_it():
    whole = torch.arange(1.0, 9.0).reshape(2, 4)
    part = whole[:, :2].clone()
    assert not holds(whole, part, {"part": part, "size": 4})
    for kept in (whole, whole[0], whole.clone(), whole.numpy(), whole.flatten().tolist(), [whole[:, 2:].clone()]):
        assert holds(whole, part, {"part": part, "kept": kept})


def test_memory_of_its_own_is_neither_anothers_nor_larger():
    whole = torch.zeros(2, 4)
    assert has_own_memory(whole[0].clone(), whole, None)
    assert not has_own_memory(whole, whole)
    assert not has_own_memory(whole.clone()[0], whole)


def test_a_refusal_may_name_other_numbers_too():
    def refuse(text):
        raise ValueError(text)

    assert refusal_naming([5, 2], refuse, "dim 1: 2 ranks, size 5") == "a ValueError that names 5 and 2"
    assert refusal_naming([5, 2], refuse, "52 is wrong") == "a ValueError that names 52"
    assert refusal_naming([5, 2], print, end="") == "nothing was raised"
