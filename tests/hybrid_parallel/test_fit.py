"""What a layout needs of model and batch, and what is said when it does not fit."""

import pytest

from dtlearn.hybrid_parallel import MeshLayout, check_layout, even_boundaries, faults

CUBE = MeshLayout(tp=2, pp=2, dp=2)
FITS = {
    "world_size": 8,
    "num_heads": 4,
    "num_layers": 4,
    "sequence_length": 8,
    "global_batch": 8,
    "num_microbatches": 4,
}


def test_what_fits_has_no_faults():
    assert faults(CUBE, **FITS) == []
    check_layout(CUBE, **FITS)


@pytest.mark.parametrize(
    ("layout", "changed", "says"),
    [
        (CUBE, {"world_size": 12}, "tp 2 * pp 2 * dp 2 = 8 ranks, and there are 12: dp=3 would use all"),
        (CUBE, {"world_size": 6}, "4 ranks hold the model once, which does not divide 6"),
        (CUBE, {"num_heads": 5}, "tp=2 does not divide 5 heads: tp can be 1 or 5"),
        (CUBE, {"num_layers": 7}, "2 stages divide neither 7 layers nor 9"),
        (CUBE, {"num_layers": 4, "chunks": 4}, "8 stages divide neither 4 layers nor 6"),
        (CUBE, {"sequence_length": 9}, "tp=2 times cp=1 needs a multiple of 2, and there are 9 tokens: take 8 or 10"),
        (
            MeshLayout(cp=3),
            {"world_size": 3, "sequence_length": 9},
            "of 2 chunks on each cp rank needs a multiple of 6",
        ),
        (
            MeshLayout(tp=4, cp=2),
            {"sequence_length": 12},
            "needs a multiple of 8, and there are 12 tokens: take 8 or 16",
        ),
        (
            MeshLayout(tp=2, cp=4),
            {"context_method": "ulysses"},
            "the 2 heads of a tp rank over cp=4, which does not go: cp",
        ),
        (
            MeshLayout(dp=2, ep=4),
            {"num_experts": 6, "num_microbatches": 1},
            "ep=4 does not divide 6 experts: ep can be 1",
        ),
        (CUBE, {"global_batch": 4}, "4 rows is too small: dp=2 in 4 micro-batches need 8"),
        (CUBE, {"global_batch": 12}, "8 parts, which do not divide a global batch of 12 rows: take 8 or 16"),
        (MeshLayout(dp=2, ep=2), {"world_size": 4, "global_batch": 4}, "dp=2 times ep=2 in 4 micro-batches need 16"),
    ],
)
def test_what_does_not_fit_is_said_with_the_numbers(layout, changed, says):
    found = faults(layout, **{**FITS, **changed})
    assert len(found) == 1 and says in found[0]


def test_all_faults_are_said_at_once():
    with pytest.raises(ValueError, match=r"tp2 pp2 dp2 does not fit: .*12.*; tp=2 does not divide 5"):
        check_layout(CUBE, **{**FITS, "world_size": 12, "num_heads": 5})


@pytest.mark.parametrize("name", [*FITS, "chunks", "num_experts"])
@pytest.mark.parametrize("count", [0, -2, 2.0, "2", True])
def test_a_count_that_is_none_is_said_alone(name, count):
    assert faults(CUBE, **{**FITS, name: count}) == [f"{name} is a whole number of 1 or more; got {count!r}"]
    with pytest.raises(ValueError, match=f"tp2 pp2 dp2 does not fit: {name} is a whole number"):
        check_layout(CUBE, **{**FITS, name: count})


def test_a_word_that_nothing_knows_is_said():
    assert faults(CUBE, context_method="rings") == ["context_method is one of ring, all-gather, ulysses; got 'rings'"]
    assert faults(CUBE, token_layout="") == ["token_layout is one of contiguous, zigzag; got ''"]


def test_boundaries_by_hand():
    assert even_boundaries(4, 1) == (0, 6)
    assert even_boundaries(4, 2) == (0, 3, 6)
    assert even_boundaries(4, 4) == (0, 2, 3, 4, 6)
    assert even_boundaries(4, 6) == (0, 1, 2, 3, 4, 5, 6)


def test_bloom_counts_the_ends_as_layers():
    """70 blocks in 12 stages: 5 with the embedding, 10 times 6, 5 with the head."""
    boundaries = even_boundaries(70, 12)
    assert boundaries == tuple(range(0, 73, 6))


def test_no_stage_is_no_boundary():
    with pytest.raises(ValueError, match="num_stages is a whole number of 1 or more; got 0"):
        even_boundaries(4, 0)
