"""ep beside one process with all experts: losses, norms and parameters; and each sum that can be wrong."""

from unittest import mock

import pytest
import torch

from dtlearn.expert_parallel import expert_gpt, mixtures
from dtlearn.hybrid_parallel import HybridGPT, MeshLayout, load_mesh_states, mesh_state, replicas, whole_parameters
from dtlearn.hybrid_parallel.more_axes.experts import DropoutOfOwnTokens, SomeParameters, mesh_shapes, mixture_shapes
from dtlearn.models import GPT, max_difference
from dtlearn.tensor_parallel import tensor_parallel_manual_seed
from tests.data_parallel.runs import message_of
from tests.devices import run_ranks
from tests.hybrid_parallel.more_axes.runs import (
    TOLERANCE,
    compare,
    difference,
    experts_config,
    experts_in_one_process,
    make_experts,
)
from tests.hybrid_parallel.runs import batches, config, float64, make, on_cpu, trained

RUNS = {
    2: [
        (MeshLayout(ep=2), {"optimizer": "sgd"}),
        (MeshLayout(ep=2), {"zero": 1, "sizes": {"tie_embeddings": True, "top_k": 1}}),
        (MeshLayout(tp=2), {}),
        (MeshLayout(dp=2), {"zero": 2}),
        (MeshLayout(dp=2), {"zero": 3, "optimizer": "sgd"}),
    ],
    4: [
        (MeshLayout(ep=2, dp=2), {"optimizer": "sgd"}),
        (MeshLayout(ep=2, dp=2, order=("dp", "ep", "tp", "pp", "cp")), {"zero": 1}),
        (MeshLayout(ep=2, pp=2), {"sizes": {"tie_embeddings": True}}),
        (MeshLayout(ep=2, pp=2), {"schedule": "zb_h1", "zero": 1}),
        (MeshLayout(ep=2, tp=2), {"optimizer": "sgd"}),
        (MeshLayout(ep=2, tp=2), {"zero": 1, "sequence_parallel": False}),
        (MeshLayout(ep=2, cp=2), {"zero": 1, "context_method": "all-gather"}),
        (MeshLayout(tp=2, cp=2), {"zero": 3}),
        (MeshLayout(ep=4), {}),
    ],
    8: [
        (MeshLayout(tp=2, ep=2, pp=2), {"zero": 1}),
        (MeshLayout(ep=2, cp=2, dp=2), {"optimizer": "sgd", "sizes": {"tie_embeddings": True}}),
    ],
}


@pytest.fixture(scope="module")
def expected():
    """By number of replicas with rows of their own, optimizer and sizes."""
    found = {}

    def one_process(layout, options):
        key = layout.num_replicas, options.get("optimizer", "adamw"), str(options.get("sizes"))
        if key not in found:
            found[key] = experts_in_one_process(key[0], optimizer=key[1], sizes=options.get("sizes"))
        return found[key]

    return one_process


@pytest.mark.slow
@pytest.mark.parametrize("ranks", RUNS)
def test_every_mesh_with_mixtures_is_one_process(ranks, expected):
    compare(RUNS[ranks], [expected(*run) for run in RUNS[ranks]], with_experts=True)


def test_on_every_device(expected, other_device):
    run = RUNS[4][0]
    compare([run], [expected(*run)], with_experts=True, device=other_device)


# Sabotage on ep x dp: what is right for all that is no expert, or without dp. Each runs, and gives other numbers.


def experts_over_all():
    choose = replicas.TrainedExperts.choose
    over_dp_and_ep = lambda part, groups: (choose(part, groups)[0], groups.dp)  # noqa: E731
    return mock.patch.object(replicas.TrainedExperts, "choose", over_dp_and_ep)


def experts_not_divided_by_ep():
    return mock.patch.object(replicas.TrainedExperts, "reduce_gradients", replicas.TrainedExperts.average)


def others_over_dp_only():
    choose = replicas.TrainedStage.choose
    over_dp = lambda part, groups: (choose(part, groups)[0], groups.expert_dp)  # noqa: E731
    return mock.patch.object(replicas.TrainedStage, "choose", over_dp)


def others_counted_on_all_of_ep():
    return mock.patch.object(replicas.TrainedStage, "is_copy_along_ep", lambda part: False)


def norm_without_ep():
    return mock.patch.object(HybridGPT, "norm_groups", lambda model: [])


def norm_over_replicas_too():
    return mock.patch.object(HybridGPT, "norm_groups", lambda model: [model.groups.dp])


SABOTAGE = [
    experts_over_all,
    experts_not_divided_by_ep,
    others_over_dp_only,
    others_counted_on_all_of_ep,
    norm_without_ep,
    norm_over_replicas_too,
]


def auxiliary_loss_scaled_as_without_microbatches(model):
    for stage in model.stages.values():
        for mixture in mixtures(stage.module):
            mixture.auxiliary_scale *= 2


def auxiliary_loss_by_own_counts(model):
    for stage in model.stages.values():
        for mixture in mixtures(stage.module):
            mixture.global_counts = False


def sabotaged():
    found = {}
    with float64():
        for sabotage in SABOTAGE:
            with sabotage():
                found[sabotage.__name__] = trained(make_experts(MeshLayout(ep=2, dp=2), optimizer="sgd"))[0]
        for change in (auxiliary_loss_scaled_as_without_microbatches, auxiliary_loss_by_own_counts):
            model = make_experts(MeshLayout(ep=2, dp=2), optimizer="sgd")
            change(model)
            found[change.__name__] = trained(model)[0]
    return found


def test_what_is_summed_elsewhere_is_found(expected):
    steps, _ = expected(*RUNS[4][0])
    result = run_ranks(sabotaged, 4, device="cpu")
    for name in result[0]:
        assert max(difference(rank[name], steps) for rank in result) > 1e-5, name


WHOLE = {"num_microbatches": 1}  # so that on all meshes the same tokens are counted together


def saved(layout, options):
    with float64():
        model = make_experts(layout, **WHOLE, **options)
        for tokens, targets in list(batches())[:2]:
            model.step(tokens, targets)
        return on_cpu(mesh_state(model))


def resumed(layout, options, states):
    """The third step, and what is saved then."""
    with float64():
        model = make_experts(layout, **WHOLE, **options)
        load_mesh_states(model, states)
        step = model.step(*list(batches())[2])
        return (step.loss, step.norm), on_cpu(mesh_state(model))


def test_another_mesh_goes_on_with_the_experts_by_their_numbers():
    """From experts in two halves, each with its state in two shards, to all of them beside divided layers."""
    steps, parameters = experts_in_one_process(1, **WHOLE)
    states = list(run_ranks(saved, 4, MeshLayout(ep=2, dp=2), {"zero": 1}, device="cpu"))
    boxes = [box for state in states for box in state["boxes"].get("blocks.0.feed_forward.experts.up_weight", ())]
    assert sum((torch.tensor(stop) - torch.tensor(start)).prod() for start, stop, _ in boxes) == 4 * 64 * 16
    result = run_ranks(resumed, 2, MeshLayout(tp=2), {}, states, device="cpu")
    assert max(difference([found], steps[2:]) for found, _ in result) < TOLERANCE
    assert max_difference(whole_parameters([state for _, state in result]), parameters).value < TOLERANCE


def refusals():
    two = MeshLayout(ep=2)
    dense = [{"config": vars(config())}]
    return {
        "dense": message_of(lambda: make(two)),
        "zero": message_of(lambda: make_experts(two, zero=2)),
        "number": message_of(lambda: make_experts(two, sizes={"num_experts": 3})),
        "other model": message_of(lambda: load_mesh_states(make_experts(MeshLayout(dp=2)), dense)),
    }


def test_what_ep_cannot_do_is_refused():
    said = run_ranks(refusals, 2, device="cpu")[0]
    assert "ep=2 divides experts, and this model has none: take an ExpertGPTConfig" in said["dense"]
    assert "zero=2 with ep=2: ZeRO 2 and 3 reduce a stage in backward" in said["zero"]
    assert "experts have 1 of them, all else 2. Take zero=1 or ep=1" in said["zero"]
    assert "ep=2 does not divide 3 experts: ep can be 1 or 3" in said["number"]
    assert "this is the state of another model: num_experts is [None] there, and 4 here" in said["other model"]


def test_shapes_are_those_of_a_model():
    sizes = experts_config(tie_embeddings=True)
    model = expert_gpt(sizes, seed=0)
    assert list(mesh_shapes(sizes).items()) == [(name, p.shape) for name, p in model.named_parameters()]
    assert mixture_shapes(sizes, 2)["experts.up_weight"] == (2, 64, 16)
    assert mesh_shapes(config()) == {name: p.shape for name, p in GPT(config()).named_parameters()}


def test_some_parameters_keep_their_names():
    layer = torch.nn.Linear(2, 3)
    some = SomeParameters(layer, ["bias"])
    assert list(dict(some.named_parameters())) == ["bias"] and next(some.parameters()) is layer.bias
    assert not some.state_dict()


def masks():
    states = tensor_parallel_manual_seed(5)
    x = torch.ones(64)
    return [DropoutOfOwnTokens(0.5, given)(x).tolist() for given in (None, states)]


def test_tokens_of_a_rank_have_masks_of_their_own():
    (alike, own), (alike_too, other) = run_ranks(masks, 2, device="cpu")
    assert alike == alike_too and own != other
