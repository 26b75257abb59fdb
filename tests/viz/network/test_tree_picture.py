import pytest

from dtlearn.viz.collectives.collective_steps import CollectiveSteps, StepMessage
from dtlearn.viz.network.tree_picture import parents_of, tree_picture, tree_words


def steps_of(*steps):
    messages = tuple(tuple(StepMessage(src, dst, 8, 0, 1) for src, dst in step) for step in steps)
    return CollectiveSteps(tuple(range(4)), (0, 8), messages, (), "gloo on CPU", 0)


TREE = steps_of([(0, 1)], [(0, 2), (1, 3)])


def test_each_rank_stands_in_the_row_of_its_step():
    ax = tree_picture(TREE, "A tree").axes[0]
    rows = {t.get_text(): t.get_position()[1] for t in ax.texts if t.get_zorder() == 4}
    assert rows == {"0": 0, "1": -1, "2": -2, "3": -2}
    columns = [t.get_position()[0] for t in ax.texts if t.get_zorder() == 4]
    assert sorted(columns) == [0, 1, 2, 3]
    assert "step 2: 2 messages, then 4 ranks have it" in [t.get_text() for t in ax.texts]


def test_words():
    assert tree_words(TREE) == "Step 1: 0 sends to 1. Step 2: 0 sends to 2, 1 sends to 3."
    assert parents_of(TREE) == {1: (0, 1), 2: (0, 2), 3: (1, 2)}


def test_what_is_no_tree():
    with pytest.raises(ValueError, match="rank 1 received twice"):
        tree_picture(steps_of([(0, 1)], [(0, 1)]), "x")
    with pytest.raises(ValueError, match=r"ranks \[0, 2, 3\] received nothing"):
        tree_picture(steps_of([(0, 1)]), "x")
