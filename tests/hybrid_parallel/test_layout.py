"""Coordinates, groups and neighbours: by hand, by their laws in every order, and beside torch's DeviceMesh."""

import itertools

import pytest
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from dtlearn.hybrid_parallel import FROM_FAST_TO_SLOW, Coordinates, MeshLayout, axes_in_use
from tests.devices import run_ranks

CUBE = MeshLayout(tp=2, pp=2, dp=2)
ALL_AXES = MeshLayout(tp=2, pp=3, dp=2, cp=2, ep=2)
BLOOM = MeshLayout(tp=4, pp=12, dp=8)  # 384 GPUs: 2211.05100, section 3.2


def test_a_cube_by_hand():
    assert CUBE.world_size == 8
    assert CUBE.coordinates(6) == Coordinates(pp=1, dp=1)
    assert CUBE.groups("tp") == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert CUBE.groups("pp") == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert CUBE.groups("dp") == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert CUBE.groups("tp", "pp") == [(0, 1, 2, 3), (4, 5, 6, 7)]  # the copies of the model
    assert CUBE.groups() == [(rank,) for rank in range(8)]
    assert str(CUBE) == "tp2 pp2 dp2" and str(MeshLayout()) == "1 rank"


def test_bloom_by_hand():
    assert BLOOM.world_size == 384 and len(BLOOM.groups("tp")) == 96
    assert BLOOM.group(0, "pp") == tuple(range(0, 48, 4))
    assert BLOOM.group(0, "dp") == tuple(range(0, 384, 48))


def test_a_pipeline_on_the_other_side_of_the_axes():
    """Megatron-LM's own order, tp-cp-ep-dp-pp: the stages are furthest apart."""
    layout = MeshLayout(tp=2, pp=2, dp=2, order=("tp", "cp", "ep", "dp", "pp"))
    assert layout.groups("pp") == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert layout.groups("dp") == [(0, 2), (1, 3), (4, 6), (5, 7)]


def test_in_every_order_ranks_and_coordinates_are_one_to_one():
    for order in itertools.permutations(FROM_FAST_TO_SLOW):
        layout = MeshLayout(tp=2, pp=3, dp=2, cp=1, ep=2, order=order)
        places = [layout.coordinates(rank) for rank in range(layout.world_size)]
        assert len(set(places)) == layout.world_size
        assert [layout.rank(place) for place in places] == list(range(layout.world_size))
        for axis, size in layout.sizes.items():
            groups = layout.groups(axis)
            assert sorted(itertools.chain(*groups)) == list(range(layout.world_size))
            assert {len(group) for group in groups} == {size}


@pytest.mark.parametrize("axis", FROM_FAST_TO_SLOW)
def test_neighbours_go_around(axis):
    size = ALL_AXES.sizes[axis]
    for rank in range(ALL_AXES.world_size):
        ring = [rank]
        for _ in range(size):
            ring.append(ALL_AXES.neighbour(ring[-1], axis))
        assert ring[-1] == rank and set(ring) == set(ALL_AXES.group(rank, axis))
        assert ALL_AXES.neighbour(ALL_AXES.neighbour(rank, axis), axis, -1) == rank


def test_rows_go_by_dp_and_ep():
    seen = {rank: ALL_AXES.replica(rank) for rank in range(ALL_AXES.world_size)}
    assert set(seen.values()) == set(range(ALL_AXES.num_replicas)) == set(range(4))
    for rank in seen:
        assert {seen[other] for other in ALL_AXES.group(rank, "tp", "pp", "cp")} == {seen[rank]}
        assert len({seen[other] for other in ALL_AXES.group(rank, "dp", "ep")}) == 4
        place = ALL_AXES.coordinates(rank)
        assert seen[rank] == 2 * place.dp + place.ep  # neighbours along ep have neighbouring rows


def test_axes_in_use():
    assert axes_in_use(CUBE) == ("tp", "pp", "dp") and axes_in_use(MeshLayout()) == ()


ORDERS = [FROM_FAST_TO_SLOW, ("dp", "tp", "cp", "ep", "pp"), ("pp", "dp", "ep", "cp", "tp")]


def groups_of_torch():
    """By order, this rank's coordinates and groups along each axis."""
    found = []
    for order in ORDERS:
        layout = MeshLayout(tp=2, pp=2, dp=2, order=order)
        mesh = init_device_mesh("cpu", layout.mesh_shape, mesh_dim_names=layout.mesh_names)
        place = dict(zip(layout.mesh_names, mesh.get_coordinate(), strict=True))
        found.append((place, {a: dist.get_process_group_ranks(mesh.get_group(a)) for a in FROM_FAST_TO_SLOW}))
    return found


def test_it_is_torchs_device_mesh():
    result = run_ranks(groups_of_torch, 8, device="cpu")
    for number, order in enumerate(ORDERS):
        layout = MeshLayout(tp=2, pp=2, dp=2, order=order)
        for rank in range(8):
            place, groups = result[rank][number]
            assert layout.coordinates(rank)._asdict() == place
            assert {axis: list(layout.group(rank, axis)) for axis in FROM_FAST_TO_SLOW} == groups


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: MeshLayout(tp=0), "tp must have 1 rank or more, got 0"),
        (lambda: MeshLayout(tp=2.5), "tp must have a whole number of ranks, such as 2; got 2.5"),
        (lambda: MeshLayout(dp="2"), "dp must have a whole number of ranks, such as 2; got '2'"),
        (lambda: MeshLayout(ep=True), "ep must have a whole number of ranks, such as 2; got True"),
        (lambda: MeshLayout(order=("tp", "pp", "dp")), "order names each of tp, cp, ep, pp, dp once"),
        (lambda: MeshLayout(order=["tp", "cp", "ep", "pp", "dp"]), "once, in a tuple"),
        (lambda: MeshLayout(order=None), "once, in a tuple.*got None"),
        (lambda: CUBE.coordinates(1.0), "got rank 1.0"),
        (lambda: CUBE.rank(Coordinates(tp="1")), "got tp='1'"),
        (lambda: CUBE.coordinates(8), "tp2 pp2 dp2 has the ranks 0 to 7; got rank 8"),
        (lambda: CUBE.rank(Coordinates(tp=2)), "tp has the places 0 to 1 in tp2 pp2 dp2; got tp=2"),
        (lambda: CUBE.group(0, "sp"), "an axis is one of tp, cp, ep, pp, dp; got 'sp'"),
        (lambda: CUBE.neighbour(0, "sp"), "an axis is one of"),
    ],
)
def test_what_is_not_there_is_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()
