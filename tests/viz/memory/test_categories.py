import itertools

import pytest

from dtlearn.memory.ledger.record import CATEGORIES
from dtlearn.viz.memory.categories import LOOKS, in_order, patch


def test_every_category_of_the_ledger_has_a_colour_and_neighbours_in_a_stack_differ_in_hatch():
    assert set(LOOKS) == set(CATEGORIES)
    assert len({look.color for look in LOOKS.values()}) == len(LOOKS)
    stacked = [look.hatch for look in LOOKS.values()]
    assert all(low != high for low, high in itertools.pairwise(stacked))


def test_stacks_begin_with_what_stays():
    assert in_order(["temporaries", "activations", "parameters"]) == ["parameters", "activations", "temporaries"]
    assert patch("gradients").get_label() == "gradients"
    with pytest.raises(ValueError, match="'weights'"):
        in_order(["weights", "gradients"])
