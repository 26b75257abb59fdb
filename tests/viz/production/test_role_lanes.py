import pytest

from dtlearn.production.serving.rank_roles import RankRoles
from dtlearn.production.serving.role_timeline import RoleEvent, RoleOutcome, SeparateRun
from dtlearn.viz.production.role_lanes import LOOKS, role_lanes, role_words
from tests.viz.production.drawn import boxes, lane_names, legend

RUN = SeparateRun(
    RankRoles(1, 1, 1),
    (
        RoleOutcome(
            (
                RoleEvent(0, "training", "step", 1, 10, 14),
                RoleEvent(0, "training", "save", 1, 14, 15),
                RoleEvent(0, "training", "step", 2, 15, 19),
            )
        ),
        RoleOutcome((RoleEvent(1, "evaluation", "evaluate", 1, 16, 20),)),
        RoleOutcome((RoleEvent(2, "serving", "load", 1, 15.5, 16), RoleEvent(2, "serving", "answer", 1, 16, 18))),
    ),
)


def test_each_rank_has_a_lane_with_what_it_did():
    fig = role_lanes(RUN, label="run: gloo on CPU")
    (ax,) = fig.axes
    assert lane_names(ax) == ["rank 0 trains", "rank 1 evaluates", "rank 2 serves"]
    drawn = {name: [boxes(ax, look, rank) for rank in range(3)] for name, (look, _) in LOOKS.items()}
    assert drawn["step"] == [[(0, 4), (5, 9)], [], []] and drawn["save"] == [[(4, 5)], [], []]
    assert drawn["evaluate"] == [[], [(6, 10)], []]
    assert drawn["load"] == [[], [], [(5.5, 6)]] and drawn["answer"] == [[], [], [(6, 8)]]
    assert ax.get_title(loc="left") == "1 of 2 steps are trained while other ranks evaluate or serve"
    assert ax.get_xlabel() == "time since the first event (s)"
    assert legend(fig)[-1] == "takes this checkpoint" and len(legend(fig)) == 6


def test_arrows_go_from_a_save_to_who_takes_it():
    (ax,) = role_lanes(RUN).axes
    arrows = [text for text in ax.texts if getattr(text, "arrow_patch", None) is not None]
    assert [arrow.xyann[0] for arrow in arrows] == [5, 5]
    assert sorted(arrow.xy[0] for arrow in arrows) == [5.5, 6]
    assert "1" in [text.get_text() for text in ax.texts]  # the step, in the box of its evaluation


def test_words():
    words = role_words(RUN)
    assert "rank 0 trains: 2 steps, 1 save" in words and "rank 1 evaluates: 1 evaluation" in words
    assert "rank 2 serves: 1 load, 1 answer" in words


def test_nobody_beside_training():
    alone = SeparateRun(RankRoles(1, 0, 0), (RUN.outcomes[0],))
    assert "nobody evaluates or serves beside it" in role_lanes(alone).axes[0].get_title(loc="left")
    with pytest.raises(ValueError, match="a run with events is needed"):
        role_lanes(SeparateRun(RankRoles(1, 0, 0), (RoleOutcome(),)))
