"""The GPT on a mesh beside one process: losses, norms and parameters of several steps under every kind of layout."""

from unittest import mock

import pytest
import torch
import torch.distributed as dist

from dtlearn.hybrid_parallel import HybridGPT, MeshLayout, recipe, replicas, whole_parameters
from dtlearn.models import max_difference
from dtlearn.runtime.errors import RankError
from tests.data_parallel.runs import message_of
from tests.devices import run_ranks
from tests.hybrid_parallel.runs import LAYOUTS, TOLERANCE, batches, float64, in_one_process, make, on_mesh, trained

ZERO = [
    {"zero": 0, "optimizer": "sgd", "tied": True},
    {"zero": 1, "tied": True},
    {"zero": 2},
    {"zero": 3, "optimizer": "sgd"},
]
SCHEDULES = [
    {"schedule": "interleaved", "tied": True},
    {"schedule": "zbv", "zero": 1, "tied": True},
    {"schedule": "gpipe", "zero": 3, "num_microbatches": 4},
    {"schedule": "zb_h1", "zero": 2, "optimizer": "sgd"},
]
WITHOUT_TIES = [{**case, "tied": False} if case["zero"] > 1 else case for case in ZERO]
CASES = {
    "1": [*ZERO[:2], ZERO[3]],
    "tp2": [*ZERO[1:], {"sequence_parallel": False, "tied": True}],
    "pp2": [*WITHOUT_TIES, {"schedule": "v_min", "tied": True}],
    "tp2 dp2": [*ZERO[:2], {"zero": 2, "tied": True}, {"zero": 3, "tied": True}],
    "pp2 dp2": [*WITHOUT_TIES, *SCHEDULES],
    "tp2 pp2": [ZERO[0], *SCHEDULES, {"boundaries": (0, 2, 6), "sequence_parallel": False}],
    "dp4": ZERO,
    "tp2 pp2 dp2": [ZERO[0], {"zero": 1, "schedule": "interleaved", "tied": True}, ZERO[2]],
    "dp2 pp2 tp2, in the wrong order": [ZERO[1]],
}
ON_DEVICES = {"tp2 dp2": ZERO[2:], "tp2 pp2": [{"schedule": "interleaved", "tied": True}]}  # a stand-in is slow


@pytest.fixture(scope="module")
def expected():
    return {(name, tied): in_one_process(name, tied) for name in ("sgd", "adamw") for tied in (False, True)}


def of(case):
    return case.get("optimizer", "adamw"), case.get("tied", False)


def difference(found, expected):
    """The largest difference in any step's loss or norm."""
    return max(abs(a - b) for pair in zip(found, expected, strict=True) for a, b in zip(*pair, strict=True))


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_one_process(name, expected):
    compare(LAYOUTS[name], CASES[name], expected, "cpu")


@pytest.mark.parametrize("name", ON_DEVICES)
def test_on_every_device(name, expected, other_device):
    compare(LAYOUTS[name], ON_DEVICES[name], expected, other_device)


def compare(layout, cases, expected, device):
    result = run_ranks(on_mesh, layout.world_size, layout, cases, device=device)
    for number, case in enumerate(cases):
        steps, parameters = expected[of(case)]
        states = [rank[number][1] for rank in result]
        assert max(difference(rank[number][0], steps) for rank in result) < TOLERANCE, case
        assert max_difference(whole_parameters(states), parameters).value < TOLERANCE, case


# Sabotage: each is what somebody wrote once, and each gives other numbers without an error.


def mean_of_means(loss_sum, total, *, group=None):
    """The mean over a micro-batch's rows of equal size, in place of that over all tokens that count."""
    return loss_sum / (8 * 2)


def nothing(*_, **__):
    pass


SABOTAGE = {
    "norm over tp only": ("tp2 pp2", HybridGPT, "norm_groups", lambda model: [model.groups.tp]),
    "norm over the replicas too": (
        "tp2 dp2",
        HybridGPT,
        "norm_groups",
        lambda model: [model.groups.tp, model.groups.dp],
    ),
    "norm of pieces without dp": ("dp4", HybridGPT, "norm_groups", lambda model: [model.groups.tp]),
    "norms counted by all of tp": (
        "tp2 dp2",
        replicas.TrainedStage,
        "counted",
        lambda stage, without: list(stage.pieces.values()),
    ),
    "both copies of a tied weight counted": ("tp2 pp2", recipe, "HEAD", "no such name"),
    "loss not weighted by tokens": ("tp2 dp2", recipe, "scale_for_averaging", mean_of_means),
    "tokens of this replica only": (
        "tp2 dp2",
        recipe,
        "count_tokens",
        lambda count, group: count.clamp(min=1),
    ),
    "replicas not averaged": ("pp2 dp2", replicas, "average_over_replicas", nothing),
    "rows by the wrong axis": ("tp2 dp2", MeshLayout, "replica", lambda layout, rank: rank % 2),
    "tied gradients not summed": ("tp2 pp2", recipe, "tied_embedding", lambda *_: ()),
}


def sabotaged(names):
    found = []
    for name in names:
        layout, owner, attribute, value = SABOTAGE[name]
        case = {"zero": 1 if name == "norm of pieces without dp" else 0, "optimizer": "sgd", "tied": True}
        with float64(), mock.patch.object(owner, attribute, value):
            found.append(trained(make(LAYOUTS[layout], **case))[0])
    return found


def test_what_is_left_out_or_summed_elsewhere_is_found(expected):
    steps, _ = expected["sgd", True]
    result = run_ranks(sabotaged, 4, list(SABOTAGE), device="cpu")
    for number, name in enumerate(SABOTAGE):
        assert max(difference(rank[number], steps) for rank in result) > 1e-4, name


def drawn(constant_seed):
    """The random numbers with which this rank would drop out replicated tensors, and its own part."""
    seed = (lambda layout, rank, seed: seed) if constant_seed else recipe.random_seed
    with mock.patch.object(recipe, "random_seed", seed):
        model = make(LAYOUTS["tp2 pp2 dp2"])
    stage = next(iter(model.stages.values()))
    block = next(iter(stage.module.blocks.values()))
    with block.attention.random_states.fork():
        own = torch.rand(3).tolist()
    return torch.rand(3).tolist(), own


def faults_of_masks(result):
    """Pairs of ranks whose random numbers are alike where they must not be, or differ where they must be alike."""
    layout, found = LAYOUTS["tp2 pp2 dp2"], []
    for one in range(8):
        for other in range(one):
            same_tp_group = other in layout.group(one, "tp")
            if (result[one][0] == result[other][0]) != same_tp_group or result[one][1] == result[other][1]:
                found.append((other, one))
    return found


def test_dropout_is_alike_along_tp_only():
    assert faults_of_masks(run_ranks(drawn, 8, False, device="cpu")) == []


def test_seeds_that_are_equal_over_dp_are_found():
    found = faults_of_masks(run_ranks(drawn, 8, True, device="cpu"))
    assert (0, 4) in found


def noting(stage, works):
    """The `backward_weights` of a stage, which first notes how many products waited for it."""
    own = stage.backward_weights

    def backward_weights(microbatch):
        works.append(len(stage.live[microbatch].work))
        own(microbatch)

    return backward_weights


def waiting():
    """The number of products that waited for each W of a step, by `zero`."""
    found = {}
    for zero in (0, 2, 3):
        model, works = make(LAYOUTS["tp2 pp2"], schedule="zb_h1", zero=zero), []
        for stage in model.runner._stages.values():
            stage.backward_weights = noting(stage, works)
        model.step(*next(batches(1)))
        found[zero] = works
    return found


def test_weights_of_divided_layers_wait_for_w_unless_zero_reduces_in_backward():
    """A stage has 2 blocks of 6 products, the last one the head's too; m = 2. ZeRO 2 and 3 hook gradients."""
    for rank, found in enumerate(run_ranks(waiting, 4, device="cpu")):
        products = 12 if rank < 2 else 13
        assert found == {0: [products] * 2, 2: [0, 0], 3: [0, 0]}


def refusals():
    def message(**options):
        layout = MeshLayout(**{axis: options.pop(axis) for axis in ("tp", "pp", "dp", "cp", "ep") if axis in options})
        return message_of(lambda: make(layout, **options))

    model, (tokens, targets) = make(MeshLayout(dp=2), num_microbatches=4), next(batches(1))
    return {
        "world": message(tp=2, dp=2),
        "tied": message(pp=2, zero=2, tied=True),
        "zero": message(dp=2, zero=4),
        "schedule": message(pp=2, schedule="1f2b"),
        "stages": message(pp=2, schedule="interleaved", chunks=4, num_microbatches=2),
        "batch": message_of(lambda: model.step(tokens[:6], targets[:6])),
    }


def test_what_does_not_go_together_is_refused_with_the_numbers():
    said = run_ranks(refusals, 2, device="cpu")[0]
    assert "the axes make tp 2 * dp 2 = 4 ranks, and there are 2: dp=1 would use all" in said["world"]
    assert "zero=2 with tied embeddings in 2 stages" in said["tied"] and "Take zero=1" in said["tied"]
    assert said["zero"] == "ValueError: zero is 0, 1, 2 or 3; got 4"
    assert "got '1f2b'" in said["schedule"]
    assert "8 stages divide neither 4 layers nor 6" in said["stages"]
    assert "a global batch of 6 rows is too small: dp=2 in 4 micro-batches need 8" in said["batch"]


def forgets_to_sum():
    with mock.patch.object(replicas, "reduce_sequence_parallel_gradients", nothing):
        trained(make(LAYOUTS["tp2"], max_norm=None))


def test_partial_sums_that_are_forgotten_are_an_error_of_chapter_12():
    with pytest.raises(RankError, match="were partial sums"):
        run_ranks(forgets_to_sum, 2, device="cpu")


def first_ranks():
    model = make(LAYOUTS["tp2 dp2"])
    return {axis: dist.get_process_group_ranks(getattr(model.groups, axis)) for axis in ("tp", "pp", "dp")}


def test_each_model_has_its_groups():
    assert run_ranks(first_ranks, 4, device="cpu")[3] == {"tp": [2, 3], "pp": [3], "dp": [1, 3]}
