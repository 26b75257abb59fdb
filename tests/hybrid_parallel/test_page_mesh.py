"""The page of the mesh: the coordinates and groups of the real layout, and the steps of the real recipe."""

import pytest
import torch
import torch.distributed as dist

import dtlearn
from dtlearn.hybrid_parallel import FROM_FAST_TO_SLOW, MeshLayout, build_stages, even_boundaries, make_groups, page_mesh
from dtlearn.pipeline_parallel import PipelineRunner, make_schedule, tied_embedding
from dtlearn.tensor_parallel import sequence_parallel_parameters, vocabulary_parallel_cross_entropy
from dtlearn.tensor_parallel.gradient_states import note_load
from dtlearn.tensor_parallel.layers.parameters import split_dims
from tests.devices import run_ranks
from tests.hybrid_parallel.runs import MAX_NORM, V, batches, config, float64, in_one_process, with_patches

MESHES = [{"tp": 2, "pp": 2, "dp": 1}, {"dp": 2, "tp": 2, "pp": 1}, {"tp": 1, "pp": 2, "dp": 2}]


@pytest.mark.parametrize("sizes", [*MESHES, {"pp": 3, "tp": 4, "dp": 5}], ids=str)
def test_coordinates_and_strides_are_the_layouts(sizes):
    rest = tuple(axis for axis in ("cp", "ep"))
    layout = MeshLayout(**sizes, order=(*sizes, *rest))
    assert page_mesh.strides(sizes) == {axis: layout.stride(axis) for axis in sizes}
    for rank in range(layout.world_size):
        place = layout.coordinates(rank)
        assert page_mesh.coordinates(rank, sizes) == {axis: getattr(place, axis) for axis in sizes}


def trained(sizes):
    """Losses and norms of three steps, by the page; SGD with momentum, tied embeddings, sequence parallelism."""
    groups, gpt = page_mesh.make_groups(sizes), config(tied=True)
    place = page_mesh.coordinates(dist.get_rank(), sizes)
    is_divided = sizes["tp"] > 1
    schedule = make_schedule("1f1b", sizes["pp"], 2)
    layout = MeshLayout(**sizes, order=(*sizes, *(axis for axis in FROM_FAST_TO_SLOW if axis not in sizes)))
    stage = build_stages(
        gpt,
        even_boundaries(gpt.num_layers, sizes["pp"]),
        [place["pp"]],
        seed=0,
        sequence_parallel=is_divided,
        device=dtlearn.device(),
        groups=make_groups(layout),
    )[place["pp"]]
    parameters, dims = dict(stage.named_parameters()), split_dims(stage)
    optimizer = torch.optim.SGD(parameters.values(), lr=0.3, momentum=0.9)
    tied = tied_embedding(gpt, sizes["pp"])
    found, total = [], torch.zeros(())

    def loss_fn(logits, targets):
        losses = vocabulary_parallel_cross_entropy(logits, targets, reduction="sum", num_classes=V, group=groups["tp"])
        return losses / total * schedule.num_microbatches

    runner = PipelineRunner(schedule, {place["pp"]: stage}, loss_fn, group=groups["pp"], tied=tied, num_terms=len)
    for batch in batches():
        tokens, targets = (page_mesh.own_rows(part.to(dtlearn.device()), sizes) for part in batch)
        total = page_mesh.count_tokens(targets, groups)
        optimizer.zero_grad()
        result = runner.step(tokens, targets)
        partial = set(sequence_parallel_parameters(stage)) if is_divided else set()
        norm = page_mesh.finish_step(
            parameters,
            groups,
            optimizer,
            alike={name for name in parameters if dims[name] is None},
            partial=partial,
            elsewhere={"head.projection.weight"} if tied else set(),
            max_norm=MAX_NORM,
        )
        for name in partial:
            note_load(parameters[name])  # chapter 12 counts sums of its own only
        loss = torch.zeros((), dtype=torch.float64, device=dtlearn.device()) if result.loss is None else result.loss
        dist.all_reduce(loss, group=groups["pp"])
        dist.all_reduce(loss, group=groups["dp"])
        found.append((loss.item(), norm.item()))
    return found


def on_ranks(sizes, patches=()):
    """`patches`: names of functions of the page, and what takes their place."""
    with float64():
        return with_patches(lambda: trained(sizes), [(page_mesh, name, value) for name, value in patches])


def difference(result):
    expected, _ = in_one_process("sgd", tied=True)
    return max(
        abs(a - b) for rank in result for pair in zip(rank, expected, strict=True) for a, b in zip(*pair, strict=True)
    )


@pytest.mark.parametrize("sizes", MESHES, ids=str)
def test_it_trains_as_one_process(sizes):
    assert difference(run_ranks(on_ranks, 4, sizes, device="cpu")) < 1e-12


def test_on_another_device(other_device):
    assert difference(run_ranks(on_ranks, 2, {"tp": 2, "pp": 1, "dp": 1}, device=other_device)) < 1e-12


def counted_alone(targets, groups):
    return targets.ne(-100).sum().clamp(min=1)


def clipped_within_tp(parameters, max_norm, *, counted, groups):
    from dtlearn.sharing.clipping import clip_grad_norm_

    return clip_grad_norm_(parameters, max_norm, counted=counted, groups=groups[:1])


def same_rows(batch, sizes):
    return batch.chunk(sizes["dp"])[0]


@pytest.mark.parametrize(
    ("sizes", "patch"),
    [
        ({"tp": 1, "pp": 1, "dp": 2}, ("count_tokens", counted_alone)),
        ({"tp": 1, "pp": 1, "dp": 2}, ("own_rows", same_rows)),
        ({"tp": 1, "pp": 2, "dp": 1}, ("clip_grad_norm_", clipped_within_tp)),
    ],
    ids=["tokens of this replica", "the same rows", "norm over tp only"],
)
def test_what_is_wrong_is_found(sizes, patch):
    assert difference(run_ranks(on_ranks, 2, sizes, [patch], device="cpu")) > 1e-4
