"""The hook for every codec: one process's simulation of all ranks, bytes by formula, bad input, and sabotage."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.futures import Future

import dtlearn
from dtlearn.gradient_compression import hooks
from dtlearn.gradient_compression.codecs.casts import CastCodec
from dtlearn.gradient_compression.codecs.codec import Codec
from dtlearn.gradient_compression.codecs.qsgd import QSGD
from dtlearn.gradient_compression.codecs.sign import PackedSign
from dtlearn.gradient_compression.codecs.sparse import RandomK, TopK
from dtlearn.gradient_compression.error_feedback import ErrorFeedback
from dtlearn.gradient_compression.hooks import CompressionState, compress_hook
from dtlearn.gradient_compression.momentum_correction import MomentumCorrection, warm_up_sparsity
from dtlearn.gradient_compression.powersgd.state import PowerSGDState
from dtlearn.models import MLP
from dtlearn.sharing.comm_hooks import GradBucket
from tests.data_parallel.runs import Paths, distance, message_of
from tests.data_parallel.test_ddp import mine
from tests.devices import run_ranks
from tests.gradient_compression.runs import (
    ONE_BUCKET,
    WRAPS,
    Empty,
    loaded,
    loss_of,
    same_bits,
    small,
    train,
    wrapped_with,
)

CODECS = {
    "half": lambda: CastCodec(),
    "qsgd": lambda: QSGD(7, 8),
    "topk": lambda: TopK(ratio=0.1),
    "all": lambda: TopK(k=10**6),
    "randomk": lambda: RandomK(ratio=0.2),
    "unbiased": lambda: RandomK(ratio=0.2, unbiased=True),
    "sign": lambda: PackedSign(8),
    "dgc": lambda: MomentumCorrection(TopK(ratio=0.1), momentum=0.9),
}


def with_codec(wrap, make, **options):
    state = CompressionState(make())
    return train(wrapped_with(wrap, state, compress_hook, **options))


def simulate(make, steps=6, lr=0.01):
    """All ranks in one process, one after the other: gradients of each rank's samples, encoded, decoded, averaged."""
    torch.manual_seed(0)
    model, num_ranks, device = small().to(dtlearn.device()), dist.get_world_size(), dtlearn.device()
    parameters = list(model.parameters())[::-1]  # the order of the bucket
    sizes = [p.numel() for p in parameters]
    codecs = [make() for _ in range(num_ranks)]
    memories = [
        codec if isinstance(codec, ErrorFeedback) else None if codec.unbiased else ErrorFeedback(codec)
        for codec in codecs
    ]
    generators = [torch.Generator(device).manual_seed(rank) for rank in range(num_ranks)]
    found = []
    for step in range(steps):
        total = torch.zeros(sum(sizes), device=device)
        for rank in range(num_ranks):
            loss = model(mine_of(rank, step)).square().sum()
            gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])
            codec, memory = codecs[rank], memories[rank]
            if memory is None:
                payload, plain = codec.encode(gradient, generator=generators[rank]), codec
            else:
                payload = memory.encode(gradient, parameters, generator=generators[rank])
                plain = memory.codec
            total += plain.decode(payload, len(total))
        gradients = dict(zip(parameters, (total / num_ranks).split(sizes), strict=True))
        with torch.no_grad():
            for p in parameters:
                p -= lr * gradients[p].view_as(p)
        found.append({name: p.detach().to("cpu", copy=True) for name, p in model.named_parameters()})
    return found


def mine_of(rank, step):
    """`mine`, of any rank."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "get_rank", lambda group=None: rank)
        return mine(step).float()


def parameters_of(run):
    return [{name: value for name, value in step.items() if not name.endswith(".grad")} for step in run]


def parity():
    """Distances to the simulation; and whether views of the buckets have the same bits."""
    found, equal = {}, {}
    for name, make in CODECS.items():
        runs = {wrap: with_codec(wrap, make, cap=ONE_BUCKET) for wrap in ("ours", "views")}
        found[name] = distance(parameters_of(runs["ours"]), simulate(make))
        equal[name] = same_bits(runs["ours"], runs["views"])
    return found, equal


@pytest.mark.parametrize("world_size", [1, 3])
def test_it_is_the_simulation_of_all_ranks_in_one_process(world_size, device):
    for found, equal in run_ranks(parity, world_size, device=device, timeout=110):
        assert found.keys() == CODECS.keys() and max(found.values()) < 1e-5, found
        assert all(equal.values()), equal


def under_torch():
    """Under torch's DDP, whose buckets change after the first step; what a codec does to them may depend on that."""
    plain = train(wrapped_with("ours"))
    away = {name: distance(with_codec("torch", make), plain) for name, make in CODECS.items()}
    alike = {
        k: same_bits(with_codec("torch", k, cap=ONE_BUCKET), with_codec("ours", k, cap=ONE_BUCKET)) for k in (topk_5,)
    }
    return away, list(alike.values())


def topk_5():
    return TopK(k=5)


def test_under_torchs_ddp():
    for away, alike in run_ranks(under_torch, 2, device="cpu", timeout=110):
        assert away["all"] < 1e-6 and 0 < away["half"] < 1e-2 and max(away.values()) < 10
        assert alike == [True]


def bytes_of(name):
    train(wrapped_with("ours", CompressionState(CODECS[name]()), compress_hook), steps=2)


@pytest.mark.parametrize("name", CODECS)
def test_bytes_by_the_record_are_those_of_the_formula(name):
    codec = CODECS[name]()
    codec = codec.codec if isinstance(codec, ErrorFeedback) else codec
    record = run_ranks(bytes_of, 2, name, device="cpu", record=True).record
    for rank in (0, 1):
        sent = record.select(rank=rank, phase="backward")
        assert [event.op for event in sent] == ["all_gather_into_tensor"] * 4 and all(e.asynchronous for e in sent)
        assert [event.nbytes for event in sent] == [codec.nbytes(340), codec.nbytes(112)] * 2


# Sabotage


class BareSign(PackedSign):
    """Signs without their scale."""

    def encode(self, x, *, generator=None):
        scales, bits = super().encode(x)
        return torch.ones_like(scales), bits


def final_loss(state, keeps=None, hook=compress_hook, lr=0.03, steps=200):
    """How far from a linear map, whose outputs are of very different size, training ends. Each rank sees it moved."""
    torch.manual_seed(0)
    device = dtlearn.device()
    target = (torch.randn(8, 6) * 10.0 ** torch.linspace(-1, 1, 8)[:, None]).to(device)
    moved = target + 3 * (-1) ** dist.get_rank() * torch.randn(8, 6).to(device)  # the mean over two ranks is the target
    model = WRAPS["ours"](nn.Linear(6, 8, bias=False).to(device))
    model.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    generator = torch.Generator().manual_seed(1 + dist.get_rank())
    for _ in range(steps):
        x = torch.randn(16, 6, generator=generator).to(device)
        optimizer.zero_grad()
        (0.5 * (model(x) - x @ moved.T).square().sum(1).mean()).backward()
        if keeps:
            keeps(state)
        optimizer.step()
    return (model.module.weight.detach() - target).square().sum().item()


def drops(state):
    for part in state.feedback.residuals.parts.values():
        part.zero_()


def shares(state):
    """Every rank keeps the residual of rank 0."""
    for part in state.feedback.residuals.parts.values():
        dist.broadcast(part, 0)


def mean_of_signs(state, bucket):
    """Signs of the mean of signs: each rank's vote, a sign again, as if an all-reduce of signs were a mean."""
    future = compress_hook(state, bucket)
    future.wait()
    buffer = bucket.buffer()
    buffer.copy_(buffer.sign() * buffer.abs().mean())
    return future


def trained():
    found = {
        "right": final_loss(CompressionState(PackedSign(8))),
        "residual dropped": final_loss(CompressionState(PackedSign(8)), drops),
        "residual shared": final_loss(CompressionState(PackedSign(8)), shares),
        "no scale": final_loss(CompressionState(BareSign(8))),
        "mean of signs": final_loss(CompressionState(PackedSign(8)), hook=mean_of_signs),
    }
    return found


def test_each_sabotage_trains_worse():
    for found in run_ranks(trained, 2, device="cpu"):
        right = found.pop("right")
        assert len(found) == 4 and all(loss > 5 * right for loss in found.values()), (right, found)


# Bad input


def with_broken(value, name):
    """One rank's gradient is not finite, in step 1. Of each step: is the mean finite, and is something new kept."""
    state = CompressionState(CODECS[name]())
    model, found = wrapped_with("ours", state, compress_hook), []
    memories = [state.feedback.residuals, *([state.feedback.velocities] if name == "dgc" else [])]
    for step in range(3):
        before = [part.clone() for memory in memories for part in memory.parts.values()]
        model.zero_grad()
        loss = loss_of(model, step)
        (loss * value if step == 1 and dist.get_rank() == 0 else loss).backward()
        finite = all(bool(p.grad.isfinite().all()) for p in model.parameters())
        after = [part for memory in memories for part in memory.parts.values()]
        assert all(bool(part.isfinite().all()) for part in after)
        found.append((finite, not (before and all(map(torch.equal, before, after)))))
    return found


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["topk", "dgc"])
def test_a_broken_gradient_is_seen_by_all_and_changes_what_nobody_keeps(value, name):
    for found in run_ranks(with_broken, 2, value, name, device="cpu"):
        assert found == [(True, True), (False, False), (True, True)]


def used_later():
    """Layer b is used from step 2 on. What has no gradient stays without one; and then everything is sent."""
    found = {}
    for wrap in ("ours", "torch"):
        runs = []
        for state in (None, CompressionState(TopK(k=10**6))):
            make = lambda: Paths().float()  # noqa: E731
            hook = compress_hook if state else None
            model = wrapped_with(wrap, state, hook, make=make, find_unused_parameters=True)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(4):
                optimizer.zero_grad()
                model(mine(step).float(), "a" if step < 2 else "ab").square().sum().backward()
                optimizer.step()
            runs.append([p.detach().clone() for p in model.module.parameters()])
        found[wrap] = max((a - b).abs().max().item() for a, b in zip(*runs, strict=True))
    return found


def test_a_parameter_may_become_used_later():
    for found in run_ranks(used_later, 2, device="cpu"):
        assert max(found.values()) < 1e-6, found


def empty_bucket():
    for make in CODECS.values():
        model = WRAPS["ours"](Empty().to(dtlearn.device()))
        model.register_comm_hook(CompressionState(make()), compress_hook)
        model(mine(0)).square().sum().backward()
        assert model.module.none.grad.shape == (0,) and model.module.a.weight.grad.dtype == torch.float64
    return len(model.buckets)


def test_an_empty_bucket():
    assert run_ranks(empty_bucket, 2, device="cpu").values == [2, 2]


def test_a_model_without_parameters_is_refused_by_ddp():
    def message():
        return message_of(lambda: WRAPS["ours"](nn.ReLU()))

    assert "there is nothing to train together" in run_ranks(message, 1, device="cpu")[0]


def going_on(folder):
    """Is a run the same that goes on from step 3 with another model, and with the state that was saved, or without?"""
    found = {}
    for name in ("topk", "qsgd", "dgc"):
        whole = train(wrapped_with("ours", CompressionState(CODECS[name]()), compress_hook), steps=6)
        first = CompressionState(CODECS[name]())
        model = wrapped_with("ours", first, compress_hook)
        train(model, steps=3)
        file = f"{folder}/{name}-{dist.get_rank()}.pt"
        torch.save({"model": model.module.state_dict(), "state": first.state_dict(model.module)}, file)
        found[name] = []
        for loads in (True, False):
            saved = torch.load(file, weights_only=True)
            second = CompressionState(CODECS[name]())
            model = wrapped_with("ours", second, compress_hook, make=lambda saved=saved: loaded(saved["model"]))
            if loads:
                second.load_state_dict(saved["state"], model.module)
            found[name].append(same_bits(train(model, steps=3, first=3), whole[3:]))
    return found


@pytest.mark.parametrize("world_size", [2])
def test_a_state_goes_on_bit_by_bit(world_size, tmp_path, device):
    for found in run_ranks(going_on, world_size, str(tmp_path), device=device):
        assert found == {name: [True, False] for name in ("topk", "qsgd", "dgc")}


def loading(change):
    model = small()
    state = {**CompressionState(TopK(k=3)).state_dict(model), **change}
    return message_of(lambda: CompressionState(TopK(k=3)).load_state_dict(state, model))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"world_size": 4}, "ValueError: this state was kept by one of 4 ranks, and 1 train now"),
        ({"rank": 3}, "ValueError: expected the state of rank 0 of 1, but this is that of rank 3"),
        ({"feedback": None}, "ValueError: this state was saved without error feedback"),
        ({"feedback": {"residuals": {"gone": torch.zeros(3)}}}, "ValueError: the state is of another model"),
        ({}, ""),
    ],
)
def test_the_state_of_another_run_is_refused(change, message):
    assert run_ranks(loading, 1, change, device="cpu")[0].startswith(message)


def from_one_file(make):
    """Every rank loads what rank 0 saved."""
    model = small()
    files = [make().state_dict(model)]
    dist.broadcast_object_list(files, 0)
    return message_of(lambda: make().load_state_dict(files[0], model))


@pytest.mark.parametrize("make", [lambda: CompressionState(TopK(k=3)), PowerSGDState], ids=["codec", "PowerSGD"])
def test_the_state_of_another_rank_is_refused(make):
    message = "ValueError: expected the state of rank 1 of 2, but this is that of rank 0: what a rank has not sent"
    first, second = run_ranks(from_one_file, 2, make, device="cpu")
    assert not first and second.startswith(message)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CompressionState(RandomK(k=3, unbiased=True), error_feedback=True), "is no contraction"),
        (lambda: CompressionState(QSGD(1, 64), error_feedback=True), "is no contraction"),
        (lambda: CompressionState(ErrorFeedback(TopK(k=3)), error_feedback=False), "give the codec itself"),
    ],
)
def test_what_does_not_go_together_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_feedback_is_for_biased_codecs_unless_asked_for():
    assert CompressionState(TopK(k=3)).feedback and not CompressionState(QSGD()).feedback
    assert CompressionState(QSGD(127, 64), error_feedback=True).feedback
    assert not CompressionState(TopK(k=3), error_feedback=False).feedback


def warming_up():
    state = CompressionState(
        MomentumCorrection(TopK(ratio=0.01)), codec_at=warm_up_sparsity(0.01, stages=1, steps_per_stage=2)
    )
    train(wrapped_with("ours", state, compress_hook), steps=4)


def test_the_codec_may_change_from_step_to_step():
    record = run_ranks(warming_up, 1, device="cpu", record=True).record
    sizes = [8 * 34, 8 * 12] * 2 + [8 * 4, 8 * 2] * 2  # a tenth and a hundredth, rounded up
    assert [event.nbytes for event in record.select(rank=0, phase="backward")] == sizes


class Later:
    """In the place of an all-gather on one rank: it is done when the test says so."""

    def __init__(self):
        self.futures = []

    def __call__(self, output, message, *, group, async_op):
        output.copy_(message)
        self.futures.append(Future())
        return self

    def get_future(self):
        return self.futures[-1]


def two_under_way():
    """Two buckets with codecs of their own, both decoded when both have been sent."""
    levels = (1, 64)
    state = CompressionState(QSGD(1, 8), codec_at=lambda step: QSGD(levels[step], 8))
    buckets = []
    for step in range(2):
        p = nn.Parameter(torch.zeros(8))
        gradient = torch.linspace(-1, 1, 8) * (step + 1)
        buckets.append(GradBucket(0, gradient, [gradient], [p], last=True))
    with pytest.MonkeyPatch.context() as patch:
        later = Later()
        patch.setattr(hooks, "all_gather_single", later)
        means = [compress_hook(state, bucket) for bucket in buckets]
    for future in later.futures:
        future.set_result(None)
    generator, expected = torch.Generator().manual_seed(0), []
    for step in range(2):
        codec = QSGD(levels[step], 8)
        payload = codec.encode(torch.linspace(-1, 1, 8) * (step + 1), generator=generator)
        expected.append(codec.decode(payload, 8))
    return [torch.equal(mean.wait(), values) for mean, values in zip(means, expected, strict=True)]


def test_what_is_under_way_is_decoded_by_its_own_codec():
    assert run_ranks(two_under_way, 1, device="cpu")[0] == [True, True]


def test_a_message_has_the_payloads_bytes_one_after_the_other():
    payload = (torch.tensor([1, 2, 3], dtype=torch.uint8), torch.tensor([0.5, -2.0]))
    message = hooks.to_message(payload)
    assert len(message) == 3 + 8
    assert all(map(torch.equal, hooks.from_message(message, payload), payload))


def test_the_codecs_interface_is_all_that_the_hook_needs():
    class Thirds(Codec):
        def encode(self, x, *, generator=None):
            return (x / 3,)

        def decode(self, payload, numel):
            return payload[0] * 3

        def nbytes(self, numel):
            return 4 * numel

    def away():
        state = CompressionState(Thirds())
        return distance(train(wrapped_with("ours", state, compress_hook)), train(wrapped_with("ours")))

    assert run_ranks(away, 1, device="cpu")[0] < 1e-5


def in_groups():
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    group = groups[dist.get_rank() % 2]
    found = []
    for state in (None, CompressionState(TopK(k=10**6), group=group)):
        torch.manual_seed(0)
        model = WRAPS["ours"](MLP((6, 16, 4)).to(dtlearn.device()), group=group)
        if state:
            model.register_comm_hook(state, compress_hook)
        model(mine(0).float()).sum().backward()
        found.append([p.grad for p in model.parameters()])
    return max((a - b).abs().max().item() for a, b in zip(*found, strict=True))


def test_in_a_group():
    assert max(run_ranks(in_groups, 4, device="cpu")) < 1e-5
