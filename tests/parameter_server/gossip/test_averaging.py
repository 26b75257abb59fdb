"""Gossip on ranks: the equation of the paper to the last bit, the large batch, the bytes of the record."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from dtlearn.models import MLP, max_difference, snapshot_parameters, train_reference
from dtlearn.parameter_server.gossip.averaging import Gossip, consensus_distance
from dtlearn.parameter_server.gossip.mixing import Mixing, complete, exponential, metropolis, ring, torus
from dtlearn.runtime.device import device
from tests.devices import run_ranks

SIZES, LR, STEPS = (5, 7, 3), 0.1, 5
MIXINGS = {
    4: [ring(4), torus(2, 2), complete(4), exponential(4), Mixing("star", (metropolis(4, [(0, 1), (0, 2), (0, 3)]),))],
    3: [ring(3), exponential(3)],
    1: [ring(1), exponential(1)],
}


def batches(rank, count=4):
    draw = torch.Generator().manual_seed(100 + rank)
    return [(torch.randn(count, 5, generator=draw), torch.randint(3, (count,), generator=draw)) for _ in range(STEPS)]


def model_of(seed):
    torch.manual_seed(seed)
    return MLP(SIZES).to(device())


def gradients(model, batch):
    model.zero_grad()
    F.cross_entropy(model(batch[0].to(device())), batch[1].to(device())).backward()


def dpsgd(mixing, gossip_class=Gossip):
    """Each rank begins elsewhere; the parameters of each step, and the consensus distance."""
    model = model_of(dist.get_rank())
    gossip, optimizer = gossip_class(model.parameters(), mixing), torch.optim.SGD(model.parameters(), lr=LR)
    steps = []
    for batch in batches(dist.get_rank()):
        gossip.start()
        gradients(model, batch)
        gossip.finish()
        optimizer.step()
        steps.append((snapshot_parameters(model), consensus_distance(list(model.parameters()))))
    return steps


def by_equation(mixing):
    """All ranks in one process: x_i <- sum over j of W_ij x_j - lr g_i(x_i)."""
    models = [model_of(rank) for rank in range(mixing.num_ranks)]
    data = [batches(rank) for rank in range(mixing.num_ranks)]
    steps = []
    for step in range(STEPS):
        for model, own in zip(models, data, strict=True):
            gradients(model, own[step])
        before = [[p.detach().clone() for p in model.parameters()] for model in models]
        for rank, model in enumerate(models):
            with torch.no_grad():
                for k, p in enumerate(model.parameters()):
                    p.zero_()
                    for j, weight in enumerate(mixing.matrices[step % len(mixing.matrices)][rank]):
                        if weight:
                            p.add_(before[j][k], alpha=weight)
                    p.add_(p.grad, alpha=-LR)
        flats = torch.stack([torch.cat([p.detach().flatten() for p in m.parameters()]).double() for m in models])
        distance = (flats - flats.mean(0)).square().sum(1).mean().sqrt().item()
        steps.append(([snapshot_parameters(model) for model in models], distance))
    return steps


class KeepsItsOwn(Gossip):
    """Does not take what its neighbours sent."""

    def finish(self):
        self._received = dict.fromkeys(self._received, self._sent)
        super().finish()


class SendsTooLate(Gossip):
    """Exchanges after the gradient, which was computed before."""

    def start(self):
        pass

    def finish(self):
        super().start()
        for p in self.parameters:
            p.data.sub_(p.grad, alpha=LR)
        super().finish()
        for p in self.parameters:
            p.data.add_(p.grad, alpha=LR)


class LastStepsMatrix(Gossip):
    """Takes the weights of the next step."""

    def finish(self):
        self.step += 1
        super().finish()
        self.step -= 1


def on_ranks(mixings):
    found = {mixing.name: dpsgd(mixing) for mixing in mixings}
    sabotaged = {kind.__name__: dpsgd(ring(4), kind) for kind in (KeepsItsOwn, SendsTooLate) if len(mixings) > 2}
    if sabotaged:
        sabotaged["LastStepsMatrix"] = dpsgd(exponential(4), LastStepsMatrix)
    return found, sabotaged


@pytest.fixture(scope="module", params=[1, 3, 4])
def world_size(request):
    return request.param


@pytest.fixture(scope="module")
def run(world_size, device):
    return run_ranks(on_ranks, world_size, MIXINGS[world_size], device=device, timeout=110)


def same(values, mixing, name, which=0):
    expected = by_equation(mixing)
    return all(
        max_difference(mine, own).value == 0
        for rank, value in enumerate(values)
        for (mine, _), (all_of_them, _) in zip(value[which][name], expected, strict=True)
        for own in [all_of_them[rank]]
    )


def test_it_is_the_papers_equation_to_the_last_bit(run):
    for mixing in MIXINGS[len(run)]:
        assert same(run.values, mixing, mixing.name), mixing.name
        for (_, distance), (_, expected) in zip(run[0][0][mixing.name], by_equation(mixing), strict=True):
            assert distance == pytest.approx(expected, abs=1e-12)


def test_what_is_wrong_is_not(run):
    for name in run[0][1]:
        assert not same(run.values, exponential(4) if name == "LastStepsMatrix" else ring(4), name, 1), name
    assert len(run[0][1]) == (3 if len(run) == 4 else 0)


def adapt_then_combine():
    model = model_of(0)
    gossip, optimizer = Gossip(model.parameters(), complete(4)), torch.optim.SGD(model.parameters(), lr=LR)
    steps = []
    for batch in batches(dist.get_rank()):
        gradients(model, batch)
        optimizer.step()
        gossip.mix()
        steps.append(snapshot_parameters(model))
    return steps


def test_a_complete_graph_after_the_step_is_the_large_batch(device):
    run = run_ranks(adapt_then_combine, 4, device=device)
    parts = [batches(rank) for rank in range(4)]
    whole = [tuple(map(torch.cat, zip(*(own[step] for own in parts), strict=True))) for step in range(STEPS)]
    reference = train_reference(lambda: MLP(SIZES), lambda p: torch.optim.SGD(p, lr=LR), whole, F.cross_entropy, seed=0)
    for of_rank in run:
        for mine, step in zip(of_rank, reference.steps, strict=True):
            assert max_difference(mine, step.parameters).value < 1e-6
    assert all(max_difference(run[0][-1], run[rank][-1]).value == 0 for rank in range(4))


def for_the_record(mixing):
    parameters = [torch.full((25,), float(dist.get_rank()))]
    gossip = Gossip(parameters, mixing)
    for _ in range(2):
        gossip.mix()
    return parameters[0][0].item(), consensus_distance(parameters)


def test_bytes_and_tags_of_the_record():
    run = run_ranks(for_the_record, 4, exponential(4), device="cpu", record=True)
    assert run.values == [(1.5, 0.0)] * 4  # log2 N steps give the exact mean
    for rank in range(4):
        sent = [(e.peer, e.nbytes, e.detail.get("tag", 0)) for e in run.record.select(rank=rank, op="isend")]
        assert sent == [((rank - 1) % 4, 100, 0), ((rank - 2) % 4, 100, 1)]
    run = run_ranks(for_the_record, 4, ring(4), device="cpu", record=True)
    for rank in range(4):
        assert run.record.nbytes(rank=rank, op="isend") == run.record.nbytes(rank=rank, op="irecv") == 2 * 2 * 100


def bad_input():
    parameters = [torch.zeros(2)]
    for make, words in (
        (lambda: Gossip(parameters, ring(3)), "is for 3 ranks, and the group has 1"),
        (lambda: Gossip([torch.zeros(2), torch.zeros(2).double()], ring(1)), "one dtype"),
        (lambda: Gossip([], ring(1)), "one dtype"),
        (lambda: Gossip(parameters, ring(1)).finish(), "without start"),
        (lambda: [g := Gossip(parameters, ring(1)), g.start(), g.start()], "twice"),
    ):
        with pytest.raises(ValueError, match=words):
            make()


def test_bad_input():
    run_ranks(bad_input, 1, device="cpu")
