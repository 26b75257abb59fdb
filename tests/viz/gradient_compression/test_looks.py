import pytest

from dtlearn.viz.gradient_compression.looks import METHOD_LOOKS, require_methods, running_mean


def test_each_look_is_told_apart_without_its_colour():
    assert len({marker for _, _, marker in METHOD_LOOKS}) == len(METHOD_LOOKS) == 10
    assert len({color for color, _, _ in METHOD_LOOKS}) == len(METHOD_LOOKS)


def test_running_mean():
    assert running_mean([1, 2, 3, 6], 2) == [1.5, 2.5, 4.5]
    assert running_mean([1, 2], 3) == []


def test_methods_that_cannot_be_told_apart_are_refused():
    assert require_methods(iter("ab")) == ["a", "b"]
    for names in ([], ["a", "a"], [str(number) for number in range(11)]):
        with pytest.raises(ValueError, match="1 to 10 methods of different names"):
            require_methods(names)
