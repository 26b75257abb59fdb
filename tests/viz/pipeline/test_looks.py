from matplotlib.colors import to_rgb

from dtlearn.viz.pipeline.looks import OP_LOOKS, face, op_patches


def test_colours_and_hatches_tell_the_kinds_of_action_apart_each_alone():
    assert len({look.color for look in OP_LOOKS.values()}) == len({look.hatch for look in OP_LOOKS.values()}) == 4


def test_later_stages_of_a_rank_are_paler_and_never_white():
    sums = [sum(to_rgb(face("B", chunk))) for chunk in range(3)]
    assert sums == sorted(set(sums)) and sum(to_rgb(face("B", 9))) < 3


def test_the_legend_explains_what_is_there():
    assert [patch.get_label()[0] for patch in op_patches("BF")] == ["F", "B", "i"]
    assert op_patches("F", chunks=True)[-1].get_label() == "paler: a later stage"
