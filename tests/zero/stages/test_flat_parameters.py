"""Flat buffers: the model is as before, a shard is a view, and what is gathered or reduced is right and counted."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dtlearn.memory import StorageLedger
from dtlearn.runtime.run import run_ranks
from dtlearn.zero import FlatParameters
from dtlearn.zero.stages import flat_parameters
from tests.data_parallel.runs import message_of, settled

LAYOUTS = {
    "flat": {},
    "buckets": {"cap": 10},
    "whole tensors": {"layout": "whole tensors"},
    "by cost": {"layout": "whole tensors", "cost": len},  # a shape's number of dimensions
}


class Odd(nn.Module):
    """Sizes that no N divides, two dtypes, a parameter without a dimension and one without elements."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = nn.Linear(5, 3), nn.Linear(3, 2).double()
        self.scale, self.empty = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.zeros(0, 4))


def values(tensors):
    return [tensor.detach().clone() for tensor in tensors]


def same(mine, theirs):
    return len(mine) == len(theirs) > 0 and all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def built(options):
    """What holds after building: values, objects, memory and shapes."""
    model = Odd()
    before = values(model.parameters())
    flat = FlatParameters(model.parameters(), **options)
    addresses = {buffer.untyped_storage().data_ptr() for buffer in flat.buffers if buffer.numel()}
    shapes = [(p.shape, q.shape) for p, q in zip(flat.pieces, flat.parameters, strict=True) if p.numel()]
    return {
        "values": same(before, values(model.parameters())),
        "objects": all(a is b for a, b in zip(flat.parameters, model.parameters(), strict=True)),
        "views": all(p.untyped_storage().data_ptr() in addresses for p in model.parameters() if p.numel()),
        "pieces": all(p.untyped_storage().data_ptr() in addresses for p in flat.pieces if p.numel()),
        "elements": sum(piece.numel() for piece in flat.pieces) == flat.partition.owned(flat.rank),
        "shapes": all(own == shape if "layout" in options else len(own) == 1 for own, shape in shapes),
    }


def gathered(options):
    """Each rank adds its number + 1 to its pieces, and then sees all of them."""
    flat = FlatParameters(Odd().parameters(), **options)
    expected = values(flat.parameters)
    with torch.no_grad():
        for piece in flat.pieces:
            piece += 1 + flat.rank
    flat.all_gather()
    for number, parameter in enumerate(expected):
        for piece in flat.partition.owners(number):
            parameter.view(-1)[piece.start : piece.stop] += 1 + piece.rank
    return same(expected, values(flat.parameters))


def reduced(options):
    """The means of gradients [0, 1, 2, ...] * (rank + 1); of a bucket's first parameter rank 0 alone has one."""
    flat, n = FlatParameters(Odd().parameters(), **options), dist.get_world_size()
    worst = 0.0
    for b, bucket in enumerate(flat.partition.buckets):
        shapes = [flat.parameters[number] for number in bucket.parameters]
        grads = [torch.arange(p.numel(), dtype=p.dtype).view_as(p) * (flat.rank + 1) for p in shapes]
        flat.set_gradients(b, flat.reduce_scatter(b, [None, *grads[1:]] if flat.rank else grads))
        for piece in bucket.slices(flat.rank):
            factor = 1 / n if piece.parameter == bucket.parameters[0] else (n + 1) / 2
            mean = torch.arange(piece.start, piece.stop) * factor
            worst = max(worst, (flat.pieces[piece.parameter].grad.flatten() - mean).abs().max().item())
    empty = [piece.grad for piece in flat.pieces if not piece.numel()]  # as with fully_shard; of whole tensors none
    return worst < 1e-6 and all((grad is None) == (flat.layout == "whole tensors") for grad in empty)


def all_layouts():
    return {name: (built(options), gathered(options), reduced(options)) for name, options in LAYOUTS.items()}


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_parameters_shards_and_pieces(num_ranks):
    for checks in run_ranks(all_layouts, num_ranks, device="cpu"):
        for name, (after_building, is_gathered, is_reduced) in checks.items():
            assert all(after_building.values()), (name, after_building)
            assert is_gathered and is_reduced, name


def bytes_and_memory():
    """Memory of building, and of what a reduction leaves; then a gather for the record."""
    model = nn.Sequential(*(nn.Linear(10, 10, bias=False) for _ in range(3)), nn.Linear(10, 1, bias=False))
    with StorageLedger() as ledger:
        flat = FlatParameters(model.parameters(), cap=100)
        built = ledger.peak, ledger.now
        grads, before = [torch.ones(10, 10)], ledger.now
        shard = flat.reduce_scatter(0, grads)
        reduced = settled(ledger, before + shard.nbytes) - before, ledger.peak - before
    flat.all_gather()
    return built, reduced


def test_bytes_and_memory():
    """Buckets of 100, 100, 100 and 10 elements on 3 ranks have 102, 102, 102 and 12."""
    result = run_ranks(bytes_and_memory, 3, device="cpu", record=True)
    for rank in range(3):
        built, reduced = result[rank]
        assert built == (4 * 318, 4 * 318)  # the model's own memory was there before the ledger
        assert reduced == (4 * 34, 4 * (102 + 34))  # a shard; on the way one bucket
        calls = [(e.op, e.nbytes) for e in result.record.select(rank=rank)]
        shards = [("all_gather_into_tensor", 4 * 34)] * 3 + [("all_gather_into_tensor", 4 * 4)]
        assert calls == [("reduce_scatter_tensor", 4 * 102), *shards]


def no_gather(patch):
    patch.setattr(flat_parameters, "all_gather_single", lambda *args, **options: None)


def no_sum(patch):
    def keeps_its_own(shard, full, group):
        shard.copy_(full[dist.get_rank() * len(shard) :][: len(shard)])

    patch.setattr(flat_parameters, "reduce_scatter_single", keeps_its_own)


def not_divided(patch):
    flatten = FlatParameters.flatten
    patch.setattr(FlatParameters, "flatten", lambda self, b, grads: flatten(self, b, grads) * self.num_ranks)


def sabotaged():
    """By what is broken and by layout: whether the gather, or the reduction, is still right."""
    results = {}
    for sabotage, check in ((no_gather, gathered), (no_sum, reduced), (not_divided, reduced)):
        with pytest.MonkeyPatch.context() as patch:
            sabotage(patch)
            results |= {(sabotage.__name__, name): check(options) for name, options in LAYOUTS.items()}
    return results


def test_without_it_the_checks_fail():
    ranks = run_ranks(sabotaged, 2, device="cpu").values
    assert len(ranks[0]) == 3 * len(LAYOUTS)
    for case in ranks[0]:
        assert not all(results[case] for results in ranks), case


def errors():
    shared = nn.Linear(4, 4)
    FlatParameters(shared.parameters())

    def moved(change):
        layer = nn.Linear(4, 4)
        flat = FlatParameters(layer.parameters())
        change(layer)
        flat.all_gather()

    def old_values():
        layer, x = nn.Linear(4, 4), torch.ones(2, 4, requires_grad=True)
        flat = FlatParameters(layer.parameters())
        loss = layer(x).sum()
        flat.all_gather()
        loss.backward()

    frozen = nn.Linear(4, 4).requires_grad_(False)
    only_one = dist.new_group([0])
    return [
        message_of(lambda: moved(lambda model: model.double())),
        message_of(lambda: moved(lambda model: FlatParameters(model.parameters()))),
        message_of(old_values),
        message_of(lambda: FlatParameters([*shared.parameters(), shared.weight])),
        message_of(lambda: FlatParameters(frozen.parameters())),
        message_of(lambda: FlatParameters(nn.Linear(2, 2, device="meta").parameters())),
        message_of(lambda: FlatParameters([torch.ones(3, dtype=torch.int64)])),
        message_of(lambda: FlatParameters(shared.parameters(), layout="rows")),
        message_of(lambda: FlatParameters(shared.parameters(), group=only_one)) if dist.get_rank() else "",
    ]


def test_errors():
    expected = [
        *["RuntimeError: parameter 0, (4, 4), has left the flat buffer that it was put into"] * 2,
        "modified by an inplace operation",
        "ValueError: parameter 2, (4, 4), comes twice: a tied parameter is given once",
        "ValueError: parameter 0 is frozen, sparse or on the meta device",
        "ValueError: parameter 0 is frozen, sparse or on the meta device",
        "TypeError: parameter 0 is torch.int64: only floating-point tensors can be trained",
        "ValueError: layout must be 'flat' or 'whole tensors', got 'rows'",
        "ValueError: this rank is not in the group",
    ]
    for message, part in zip(run_ranks(errors, 2, device="cpu")[1], expected, strict=True):
        assert part in message


def added():
    """Parameters that come later have their own buckets, and what was there stays where it was."""
    first, later = nn.Linear(5, 3), nn.Linear(3, 2)
    flat = FlatParameters(first.parameters(), cap=7)  # 15 and 3 elements
    addresses, pieces = [b.data_ptr() for b in flat.buffers], [id(p) for p in flat.pieces]
    flat.add(later.parameters())
    flat.all_gather()
    twice = message_of(lambda: flat.add(later.parameters()))
    return (
        [b.parameters for b in flat.partition.buckets],
        addresses == [b.data_ptr() for b in flat.buffers][: len(addresses)]
        and pieces == [id(p) for p in flat.pieces][:2],
        len(flat.pieces) == 4 == len(flat.parameters),
        "parameter 0, (2, 3), comes twice" in twice,
    )


def test_parameters_that_come_later():
    assert run_ranks(added, 2, device="cpu").values == [([(0,), (1,), (2, 3)], True, True, True)] * 2
