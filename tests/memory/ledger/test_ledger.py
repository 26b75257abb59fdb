"""The ledger itself: one step by hand, other trackers and the process beside it, and what it makes of bad input."""

import threading
import time
import weakref
from dataclasses import replace

import psutil
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from dtlearn.memory import MemoryLedger, StorageLedger, record_step
from dtlearn.memory.ledger import storage_ledger
from dtlearn.memory.ledger.ledger import common_module
from dtlearn.models import GPT, MLP, GPTConfig, next_token_loss
from dtlearn.runtime.run import run_ranks


def live(ledger):
    """Bytes of each category now, without the empty ones."""
    return {name: numbers[-1] for name, numbers in ledger.record().timeline().items() if numbers[-1]}


def test_a_step_of_a_linear_layer_by_hand():
    torch.manual_seed(0)
    model = nn.Linear(10, 5)  # 55 parameters, 220 bytes
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    inputs = torch.randn(8, 10)  # 320 bytes
    with MemoryLedger(model, optimizer, inputs=inputs) as ledger:
        assert ledger.now == 220 + 320
        with ledger.phase("forward"):
            outputs = model(inputs)  # 8 x 5: 160 bytes
            loss = (outputs * outputs).sum()
        with ledger.phase("backward"):
            loss.backward()
        with ledger.phase("step"):
            optimizer.step()
        with ledger.phase("zero_grad"):
            optimizer.zero_grad()
    record = ledger.record()
    ends = {phase.name: {name: live[phase.stop] for name, live in record.timeline().items()} for phase in record.phases}
    always = {"parameters": 220, "inputs": 320, "buffers": 0, "communication": 0}
    loss_bytes = {"activations": 160, "temporaries": 4}  # `outputs` is a variable here, so it stays
    assert ends == {
        "forward": {**always, **loss_bytes, "gradients": 0, "optimizer state": 0},
        "backward": {**always, **loss_bytes, "gradients": 220, "optimizer state": 0},
        "step": {**always, **loss_bytes, "gradients": 220, "optimizer state": 220},
        "zero_grad": {**always, **loss_bytes, "gradients": 0, "optimizer state": 220},
    }
    assert record.live()[-1] == ledger.now and record.peak.bytes == ledger.peak


def test_the_parts_add_up_at_every_tick():
    torch.manual_seed(0)
    model, tokens = GPT(GPTConfig(48, 16, 2, 4, 32)), torch.randint(48, (3, 11))
    optimizer = torch.optim.AdamW(model.parameters())
    seen = []
    with MemoryLedger(model, optimizer) as ledger:
        for _ in range(2):
            next_token_loss(model(tokens[:, :-1]), tokens[:, 1:]).backward()
            seen.append((ledger.record().clock, ledger.now))
            optimizer.step()
            optimizer.zero_grad()
            seen.append((ledger.record().clock, ledger.now))
    record = ledger.record()
    numbers = record.live()
    assert [numbers[clock] for clock, _ in seen] == [now for _, now in seen]
    assert max(numbers) == ledger.peak == record.peak.bytes
    assert [sum(parts) for parts in zip(*record.timeline().values(), strict=True)] == numbers
    ticks = sorted([a.made for a in record.allocations if a.made] + [a.gone for a in record.allocations if a.gone])
    assert ticks == list(range(1, record.clock + 1))  # one event a tick


def step_of_gpt():
    """A function that trains for a step, its model, its optimizer and its inputs."""
    torch.manual_seed(0)
    model, tokens = GPT(GPTConfig(48, 16, 2, 4, 32)), torch.randint(48, (3, 11))
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)

    def step():
        loss = next_token_loss(model(tokens[:, :-1]), tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, model, optimizer, tokens


def test_it_agrees_with_torchs_tracker():
    from torch.distributed._tools.mem_tracker import MemTracker  # 1 s; every worker imports this file, one runs it

    step, model, optimizer, tokens = step_of_gpt()
    step()
    tracker = MemTracker()
    tracker.track_external(model, optimizer, tokens)
    with tracker:
        step()
    snapshot = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
    theirs = {getattr(name, "value", name): number for name, number in snapshot.items()}
    with MemoryLedger(model, optimizer, inputs=tokens) as ledger:
        step()
    ours = ledger.record().peak.by_category
    assert ledger.peak == theirs["Total"]
    pairs = (("parameters", "Parameter"), ("optimizer state", "Optstate"), ("inputs", "Other"))
    assert all(ours[name] == theirs[other] for name, other in pairs)
    # Theirs takes a gradient for a temporary until its hook runs, and what a forward pass makes for an activation.
    rest = ours["gradients"] + ours["activations"] + ours["temporaries"]
    assert rest == theirs["Gradient"] + theirs["Activation"] + theirs["Temp"]


def resident_and_counted():
    """On a rank: growth of the process and of the ledger's figure over the parts of a step, in bytes."""
    torch.manual_seed(0)
    process = psutil.Process()
    # 34 million parameters. Every large tensor has more than 32 MiB: less than that, glibc may keep when it is freed.
    model = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    inputs = torch.randn(16, 4096)
    model(inputs).square().sum().backward()  # what MKL takes for itself once
    optimizer.zero_grad()
    growth = {}
    with MemoryLedger(model, optimizer, inputs=inputs) as ledger:
        start = ledger.now, process.memory_info().rss

        def note(name):
            growth[name] = (process.memory_info().rss - start[1], ledger.now - start[0])

        loss = model(inputs).square().sum()
        note("forward")
        loss.backward()
        note("backward")
        optimizer.step()
        note("step")
        optimizer.zero_grad()
        note("zero_grad")
    return growth


def test_it_agrees_with_the_processs_resident_memory():
    growth = run_ranks(resident_and_counted, 1)[0]
    assert growth["step"][1] > 250e6
    for name, (resident, counted) in growth.items():
        assert abs(resident - counted) < 0.03 * growth["step"][1], (name, growth)


def test_it_agrees_with_the_base_and_changes_no_lifetime():
    step, model, optimizer, tokens = step_of_gpt()
    step()
    with StorageLedger() as bytes_only:
        step()
    with MemoryLedger(model, optimizer, inputs=tokens) as ledger:
        there = ledger.now
        step()
    assert ledger.peak - there == bytes_only.peak
    with MemoryLedger(model, optimizer, inputs=tokens) as outer, MemoryLedger(model, optimizer, inputs=tokens) as inner:
        step()
    assert outer.peak == inner.peak == ledger.peak
    assert outer.record().peak.by_category == inner.record().peak.by_category == ledger.record().peak.by_category


def test_a_ledger_that_counts_views_would_be_noticed():
    """Sabotage: a ledger that takes a tensor for a storage counts the transposed weight of a linear layer too."""
    step, *_ = step_of_gpt()
    step()
    with StorageLedger() as right:
        step()

    class CountsTensors(StorageLedger):
        def _note(self, tensor, func):
            if func is not None:
                self.now += tensor.nbytes
                self.peak = max(self.peak, self.now)
                weakref.finalize(tensor, self._less, tensor.nbytes)

        def _less(self, number):
            self.now -= number

    with CountsTensors() as wrong:
        step()
    assert wrong.peak > right.peak


def test_a_ledger_that_misses_resized_storages_would_be_noticed(monkeypatch):
    """Sabotage: parameters that are sharded are resized, without an operation."""

    def count():
        weight = nn.Parameter(torch.zeros(1000))
        model = nn.Module()
        model.weight = weight
        with MemoryLedger(model) as ledger:
            weight.untyped_storage().resize_(0)
            freed = ledger.now
            weight.untyped_storage().resize_(4000)
            weight.data.zero_()
        return freed, ledger.now, [(a.bytes, a.made, a.gone, a.category) for a in ledger.record().allocations]

    assert count() == (0, 4000, [(4000, 0, 1, "parameters"), (4000, 2, None, "parameters")])
    monkeypatch.setattr(storage_ledger, "watch_resizes", lambda notify: torch.UntypedStorage.resize_)
    assert count() != (0, 4000, [(4000, 0, 1, "parameters"), (4000, 2, None, "parameters")])


def settled(ledger, wanted):
    """What is live when it is `wanted`: gloo's thread lets go of a tensor a moment after the wait for it."""
    deadline = time.monotonic() + 10
    while live(ledger) != wanted and time.monotonic() < deadline:
        time.sleep(0.001)
    return live(ledger)


def in_flight():
    """On a rank: what the ledger has while a collective runs, and after it."""
    with MemoryLedger() as ledger:
        work = dist.all_reduce(torch.ones(1000), async_op=True)
        held = live(ledger)
        work.wait()
        del work
        after = settled(ledger, {})
        gathered = [torch.empty(10) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, torch.ones(10))
        at_the_end = settled(ledger, {"communication": 40 * len(gathered)})
    return held, after, max(ledger.record().live("communication")), at_the_end


def test_what_collectives_hold_in_flight_is_communication():
    for held, after, most, at_the_end in run_ranks(in_flight, 2):
        assert held == {"communication": 4000} and after == {}
        assert most == 4000 and at_the_end == {"communication": 80}


def sharded_and_replicated():
    """On a rank: what is live after a backward pass under FSDP2, and the most under a DDP that is built inside."""
    layers = nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU(), nn.Linear(8, 8, bias=False))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in (layers[0], layers[2], layers):
        fully_shard(module, mesh=mesh)
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1, momentum=0.9)
    with MemoryLedger(layers, optimizer) as ledger:
        layers(torch.ones(4, 8)).square().sum().backward()
        optimizer.step()
        sharded = live(ledger)
    whole = nn.Linear(8, 8, bias=False)
    with MemoryLedger(whole) as ledger:
        replicated = DistributedDataParallel(whole)
        replicated(torch.ones(4, 8)).square().sum().backward()
    record = ledger.record()
    return sharded, max(record.live("gradients")), max(record.live("communication"))


def test_sharded_parameters_are_those_of_this_rank_and_a_ddp_that_is_built_inside_has_its_bucket():
    for sharded, gradients, communication in run_ranks(sharded_and_replicated, 2):
        names = ("parameters", "gradients", "optimizer state")
        assert [sharded[name] for name in names] == [2 * 256 // 2] * 3
        assert gradients == 256 <= communication


def test_tensors_from_before_count_from_their_first_use_or_from_the_beginning():
    before = torch.ones(100)
    with MemoryLedger() as ledger:
        assert ledger.now == 0
        total = before.sum()
        assert live(ledger) == {"inputs": 400, "temporaries": total.nbytes}
        del before
        assert ledger.now == 4
    given = {"x": [torch.ones(100)]}
    with MemoryLedger(inputs=given) as ledger:
        assert live(ledger) == {"inputs": 400}


def test_tensors_that_are_made_from_other_memory():
    import numpy as np

    array = np.ones(50)
    with MemoryLedger() as ledger:
        made = [torch.tensor([1.0, 2.0]), torch.from_numpy(array), torch.zeros(2, device="meta")]
        assert ledger.now == 8 + 400 + 0
        made.clear()
        assert ledger.now == 0
    with StorageLedger() as ledger:
        made = [torch.tensor([1.0, 2.0]), torch.from_numpy(array)]
        assert ledger.now == 8  # an array's memory is not torch's


def test_sparse_gradients():
    model = nn.Embedding(100, 4, sparse=True)
    with MemoryLedger(model) as ledger:
        model(torch.tensor([1, 5])).sum().backward()
        assert live(ledger)["gradients"] == model.weight.grad._indices().nbytes + model.weight.grad._values().nbytes


def test_batches_of_a_data_loaders_worker_are_inputs_when_they_arrive():
    loader = DataLoader(TensorDataset(torch.ones(8, 100)), batch_size=4, num_workers=1)
    with MemoryLedger() as ledger:
        for (batch,) in loader:
            batch.sum()
    record = ledger.record()
    assert [a.bytes for a in record.allocations if a.category == "inputs"] == [1600, 1600]
    assert record.live("inputs")[0] == 0


def test_tensors_of_other_threads_count_from_their_first_use_in_this_one():
    made = []
    with MemoryLedger() as ledger:
        thread = threading.Thread(target=lambda: made.append(torch.ones(100)))
        thread.start()
        thread.join()
        assert ledger.now == 0
        made[0].add_(1)
        assert live(ledger) == {"inputs": 400}
        made.clear()
        assert ledger.now == 0


def test_it_counts_one_block():
    for kind in (MemoryLedger, StorageLedger):
        ledger = kind()
        with ledger, pytest.raises(RuntimeError, match="opened before: make a new one"), ledger:
            pass
        with pytest.raises(RuntimeError, match="opened before"), ledger:
            pass


def test_a_phase_belongs_in_the_block():
    ledger = MemoryLedger()
    with pytest.raises(RuntimeError, match="the phase 'forward' belongs in the block"), ledger.phase("forward"):
        pass


def test_an_exception_leaves_nothing_behind():
    model = MLP((4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    resize = torch.UntypedStorage.resize_
    with pytest.raises(ZeroDivisionError), MemoryLedger(model, optimizer) as ledger, ledger.phase("forward"):
        kept = torch.ones(100)
        1 / 0  # noqa: B018
    assert torch.UntypedStorage.resize_ is resize
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    record = ledger.record()
    assert [(p.name, p.stop) for p in record.phases] == [("forward", record.clock)]
    assert record.live("temporaries")[-1] == kept.nbytes
    del kept
    torch.ones(50)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    assert ledger.record() == record  # it is over


def test_a_model_that_cannot_be_counted_leaves_nothing_behind():
    with pytest.raises(ValueError, match="on the meta device"):
        record_step(MLP((4, 4)).to("meta"), None, (torch.ones(2, 4), torch.zeros(2).long()), F.cross_entropy)
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()


def test_inference_and_no_grad():
    model = MLP((4, 4))
    with MemoryLedger(model) as ledger:
        with torch.inference_mode():
            kept = model(torch.ones(2, 4))
        assert live(ledger) == {"parameters": 80, "temporaries": kept.nbytes}


def test_what_modules_share():
    assert (
        common_module("a.b.c", "a.b.d") == "a.b" and common_module("ab", "a") == "" and common_module("a", "a") == "a"
    )


def test_a_record_says_where_things_are():
    with MemoryLedger() as ledger:
        kept = torch.ones(2)
    (allocation,) = ledger.record().allocations
    assert allocation == replace(allocation, bytes=kept.nbytes, operation="aten::ones", device="cpu", made=1, gone=None)
