import pytest
import torch.distributed as dist

from dtlearn.production.checkpoints.format import CheckpointError, DamagedError
from dtlearn.production.checkpoints.ranks import JobRanks, tried
from tests.devices import run_ranks


def outcomes(error_of):
    """On each rank what `together` and `from_first` raise if rank 0 or rank 1 fails."""
    ranks, said = JobRanks.of(None), []

    def act():
        if dist.get_rank() in error_of:
            raise error_of[dist.get_rank()]
        return dist.get_rank()

    for method in (ranks.together, ranks.from_first):
        try:
            said.append(method(act))
        except Exception as error:
            said.append((type(error).__name__, str(error)))
    gathered = ranks.all_gather(ranks.rank), ranks.gather(ranks.rank)
    ranks.close()
    return said, gathered


def test_without_a_failure_each_has_its_value():
    assert [said for said, _ in run_ranks(outcomes, 2, {}, device="cpu")] == [[0, 0], [1, 0]]
    assert [found for _, found in run_ranks(outcomes, 2, {}, device="cpu")] == [([0, 1], [0, 1]), ([0, 1], [])]


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (DamagedError("torn"), "DamagedError", "torn"),
        (CheckpointError("of another job"), "CheckpointError", "of another job"),
        (OSError(28, "No space left on device", "a/b"), "CheckpointError", "a/b: No space left on device"),
    ],
)
def test_a_failure_of_one_is_raised_by_all(error, kind, text):
    for said, _ in run_ranks(outcomes, 2, {1: error}, device="cpu"):
        assert said == [(kind, f"rank 1: {text}"), 0]
    for said, _ in run_ranks(outcomes, 2, {0: error}, device="cpu"):
        assert said == [(kind, f"rank 0: {text}"), (kind, text)]


def test_a_mistake_in_the_program_keeps_its_own_type_where_it_happened():
    said = [said[0] for said, _ in run_ranks(outcomes, 2, {1: KeyError("w")}, device="cpu")]
    assert said == [("CheckpointError", "rank 1: KeyError: 'w'"), ("KeyError", "'w'")]


def test_one_process_alone_needs_no_group():
    ranks = JobRanks.of(None)
    assert (ranks.rank, ranks.size, ranks.all_gather(5), ranks.gather(5), ranks.from_first(lambda: 7)) == (
        0, 1, [5], [5], 7
    )  # fmt: skip
    with pytest.raises(CheckpointError, match=r"^no room$"):
        ranks.together(lambda: (_ for _ in ()).throw(OSError("no room")))
    ranks.close()
    assert tried(lambda: 3) == (3, None, None)
