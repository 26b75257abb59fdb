"""Every way of every case, run on 1 to 4 ranks, is the whole product; and the calls are those that the case names."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.run import run_ranks
from dtlearn.tensor_parallel.notation.product_case import product_case
from dtlearn.tensor_parallel.notation.sharded import parse
from dtlearn.tensor_parallel.notation.sharded_product import sharded_product
from tests.sharing.groups import calls_of, in_groups
from tests.tensor_parallel.notation.test_product_case import PRODUCTS
from tests.tensor_parallel.parity import part, tensors

SIZES = {"I": 12, "J": 24, "K": 36, "B": 12, "T": 12}
CASES = [product_case(a, b) for a, b in PRODUCTS]
CASES += [product_case("x[B, T, J]", "W[J, K_t]"), product_case("h[B, T, J_t]", "W[J_t, K]")]
WAYS = [(case, way) for case in CASES for way in case.ways]
OPS = {"all_gather": "all_gather_into_tensor", "reduce_scatter": "reduce_scatter_tensor", "all_reduce": "all_reduce"}


def piece(whole, array, group):
    """This rank's part of an array: of a partial one nothing can be said."""
    dim = array.divided_dim("t")
    return part(whole, dim and array.dims.index(dim), group)


def errors_of_all_ways():
    def case_of_group(group):
        found = []
        for case, way in WAYS:
            a, b = tensors(*([SIZES[dim] for dim in array.dims] for array in (case.a, case.b)))
            local = piece(a, parse(str(case.a)), group), piece(b, case.b, group)
            c, array = sharded_product(case, *local, way=way.name, group=group)
            assert array == way.result
            sizes = c.shape
            if array.partial:
                c = c.clone()
                dist.all_reduce(c, group=group)
                array = array.reduced("t")
            assert sizes == way.result.local_shape(SIZES, {"t": dist.get_world_size(group)})
            dist.barrier(group=group)
            found.append((c - piece(a @ b, array, group)).abs().max().item())
        with pytest.raises(ValueError, match="has the ways all-reduce"):
            sharded_product(product_case("A[I, J_t]", "B[J_t, K]"), a, b, way="gather A", group=group)
        if dist.get_world_size(group) > 1:
            case = product_case("A[I_t, J]", "B[J, K]")
            whole = torch.zeros(12, 24), torch.zeros(12, 6)
            with pytest.raises(ValueError, match="dim J has 24 elements in this rank's A and 12 in its B"):
                sharded_product(case, *whole, group=group)
        if dist.get_world_size(group) == 2:
            case = product_case("A[I, J_t]", "B[J_t, K]")
            with pytest.raises(ValueError, match="5 elements of dim I cannot be divided among 2 ranks"):
                sharded_product(case, torch.zeros(5, 1), torch.zeros(1, 2), way="reduce-scatter along I", group=group)
        return found

    return in_groups(case_of_group)


def test_all_ways():
    run = run_ranks(errors_of_all_ways, 4, device="cpu", record=True)
    for of_sizes in run:
        for found in of_sizes.values():
            assert len(found) == len(WAYS) and max(found) < 1e-12
    for size in (2, 3, 4):
        calls = [op for op, _ in calls_of(run.record, size)]
        expected = []
        for _, way in WAYS:
            expected += [OPS[step.op] for step in way.steps if step.op in OPS]
            expected += ["all_reduce"] * bool(way.result.partial) + ["barrier"]
        assert calls == expected


def test_bytes_of_the_record_are_those_of_the_way():
    sizes = {"I": 4, "J": 8, "K": 12}

    def one_way(case, way):
        a, b = tensors(*([sizes[dim] for dim in array.dims] for array in (case.a, case.b)))
        sharded_product(case, piece(a, case.a, None), piece(b, case.b, None), way=way)

    def all_of_them():
        for case, way in WAYS[:14]:
            one_way(case, way.name)
            dist.barrier()

    record = run_ranks(all_of_them, 4, device="cpu", record=True).record
    sent, of_way = [], 0.0
    around = {"all_gather_into_tensor": 3, "reduce_scatter_tensor": 3 / 4, "all_reduce": 2 * 3 / 4, "barrier": 0}
    for event in record.select(rank=1):
        of_way += event.nbytes / 8 * around[event.op]
        if event.op == "barrier":
            sent.append(of_way)
            of_way = 0.0
    assert sent == [way.sent_elements(sizes, 4) for _, way in WAYS[:14]]
