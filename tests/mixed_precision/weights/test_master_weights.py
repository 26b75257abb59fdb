"""Masters: bit for bit the plain optimizer on float32 copies, with torch's protocol, scalers and memory."""

import pytest
import torch
from torch import nn

from dtlearn.memory import StorageLedger
from dtlearn.mixed_precision import GradScaler, MasterWeights
from tests.devices import run_ranks
from tests.mixed_precision.weights.runs import OPTIMIZERS, batches, loss_of, model, same, train, values, weight_after


def train_by_hand(dtype, optimizer_class, options, steps):
    """The rule, written out: the model's gradients in float32, the plain optimizer on copies, copies back."""
    module = model(dtype)
    masters = [nn.Parameter(parameter.detach().float()) for parameter in module.parameters()]
    optimizer = optimizer_class(masters, **options)
    for batch in batches(steps, dtype):
        module.zero_grad()
        loss_of(module, batch).backward()
        for parameter, master in zip(module.parameters(), masters, strict=True):
            master.grad = parameter.grad.float()
        optimizer.step()
        with torch.no_grad():
            for parameter, master in zip(module.parameters(), masters, strict=True):
                parameter.copy_(master)
    return values(module)


def train_wrapped(dtype, optimizer_class, options, steps, wrapper=MasterWeights):
    module = model(dtype)
    return train(module, wrapper(module.parameters(), optimizer_class, **options), steps)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_as_the_rule_written_out(name, dtype):
    assert same(train_wrapped(dtype, *OPTIMIZERS[name], 6), train_by_hand(dtype, *OPTIMIZERS[name], 6))


def on_a_rank():
    options = [(dtype, *OPTIMIZERS[name], 6) for dtype in (torch.bfloat16, torch.float16) for name in OPTIMIZERS]
    return [same(train_wrapped(*given), train_by_hand(*given)) for given in options]


def test_as_the_rule_written_out_on_another_device(other_device):
    assert run_ranks(on_a_rank, 1, device=other_device)[0] == [True] * 6


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_float32_parameters_are_their_own_masters(name):
    optimizer_class, options = OPTIMIZERS[name]
    module = model(torch.float32)
    plain = train(module, optimizer_class(module.parameters(), **options), 6)
    assert same(train_wrapped(torch.float32, optimizer_class, options, 6), plain)
    optimizer = MasterWeights(module.parameters(), optimizer_class, **options)
    assert all(p.data_ptr() == master.data_ptr() for p, master in optimizer.pairs)


class NotWrittenBack(MasterWeights):
    def copy_masters_to_model(self):
        pass


class MastersFromTheModel(MasterWeights):
    """What a wrapper without masters would do: begin each step at the rounded weights."""

    def step(self, closure=None, **options):
        self.copy_model_to_masters()
        return super().step(closure, **options)


@pytest.mark.parametrize("broken", [NotWrittenBack, MastersFromTheModel])
def test_a_broken_wrapper_fails_the_parity(broken):
    mine = train_wrapped(torch.bfloat16, *OPTIMIZERS["sgd"], 6, broken)
    assert not same(mine, train_by_hand(torch.bfloat16, *OPTIMIZERS["sgd"], 6))


def test_small_updates_add_up():
    def plain(params, optimizer_class, **options):
        return optimizer_class(params, **options)

    assert (weight_after(plain, 1000, 1e-3) == 1.0).all()
    assert (weight_after(MastersFromTheModel, 1000, 1e-3) == 1.0).all()
    assert (weight_after(MasterWeights, 1000, 1e-3) == 2.0).all()


# torch's protocol.


def test_schedulers_and_groups():
    module = model()
    first, last = list(module[0].parameters()), list(module[2].parameters())
    optimizer = MasterWeights([{"params": first, "lr": 0.1}], torch.optim.SGD, lr=0.5)
    optimizer.add_param_group({"params": last})
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.5]
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    before = values(module)
    train(module, optimizer, 1)
    scheduler.step()
    assert [group["lr"] for group in optimizer.inner.param_groups] == [0.05, 0.25]
    assert not any(torch.equal(a, b) for a, b in zip(before, values(module), strict=True))
    with pytest.raises(ValueError, match="in a group of this optimizer already"):
        optimizer.add_param_group({"params": last})
    assert len(list(optimizer.pairs)) == 4


def test_names_frozen_parameters_and_hooks():
    module = model()
    module[0].requires_grad_(False)
    optimizer = MasterWeights(module.named_parameters(), torch.optim.AdamW, lr=0.1)
    assert optimizer.param_groups[0]["param_names"] == [name for name, _ in module.named_parameters()]
    assert [master.requires_grad for _, master in optimizer.pairs] == [False, False, True, True]
    steps, before = [], values(module)
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    after = train(module, optimizer, 2)
    assert steps == [1, 1] and same(before[:2], after[:2]) and not same(before[2:], after[2:])


def test_zero_grad():
    weight = nn.Parameter(torch.ones(2).bfloat16())
    optimizer = MasterWeights([weight], torch.optim.SGD, lr=1.0)
    ((_, master),) = optimizer.pairs
    for set_to_none in (True, False):
        weight.sum().backward()
        optimizer.copy_gradients_to_masters()
        assert master.grad.dtype == torch.float32 and master.grad.tolist() == weight.grad.tolist()
        optimizer.zero_grad(set_to_none)
        assert master.grad is None and (weight.grad is None if set_to_none else not weight.grad.any())


def test_sparse_gradients():
    runs = []
    for dtype in (torch.bfloat16, torch.float32):
        table = nn.Embedding.from_pretrained(torch.ones(4, 2).to(dtype), freeze=False, sparse=True)
        optimizer = MasterWeights(table.parameters(), torch.optim.SparseAdam, lr=0.25)
        for _ in range(2):
            optimizer.zero_grad()
            table(torch.tensor([1, 1, 3])).sum().backward()
            optimizer.step()
        runs.append(table.weight.detach().bfloat16())
    assert torch.equal(*runs) and (runs[0][::2] == 1).all() and (runs[0][1::2] != 1).all()


def test_a_closure_sees_the_masters_values():
    def minimum(wrapper, dtype):
        weight = nn.Parameter(torch.tensor([3.0, -2.0], dtype=dtype))
        optimizer = wrapper([weight], torch.optim.LBFGS, lr=0.5, max_iter=4)
        evaluated = []

        def closure():
            optimizer.zero_grad()
            loss = (weight.float() - torch.tensor([1.0, 0.5])).square().sum()
            loss.backward()
            evaluated.append(weight.detach().float().tolist())
            return loss

        first = optimizer.step(closure)
        return first.item(), weight.detach().float(), evaluated

    def plain(params, optimizer_class, **options):
        return optimizer_class(params, **options)

    mine, theirs = minimum(MasterWeights, torch.float32), minimum(plain, torch.float32)
    assert mine[0] == theirs[0] and torch.equal(mine[1], theirs[1]) and mine[2] == theirs[2]
    _, weight, evaluated = minimum(MasterWeights, torch.bfloat16)
    assert len({tuple(point) for point in evaluated}) > 2  # the model moved between the calls
    assert torch.allclose(weight, theirs[1], atol=0.05)


def test_a_weight_that_was_changed_without_its_master_is_an_error():
    """The step would bring the old weight back."""
    module = model()
    optimizer = MasterWeights(module.parameters(), torch.optim.AdamW, lr=0.1)
    train(module, optimizer, 1)
    new = model(seed=1)
    module.load_state_dict(new.state_dict())
    with pytest.raises(RuntimeError, match=r"call copy_model_to_masters\(\) after model.load_state_dict\(\)"):
        train(module, optimizer, 1)
    optimizer.copy_model_to_masters()
    module.load_state_dict(module.state_dict())  # written, and not changed
    assert not same(train(module, optimizer, 1), values(new))
    with torch.no_grad():
        module[0].weight.zero_()
    optimizer.copy_masters_to_model()
    assert module[0].weight.count_nonzero() > 0
    train(module, optimizer, 1)


def test_states_resume_a_run_bit_for_bit():
    optimizer_class, options = OPTIMIZERS["adamw"]
    whole = train_wrapped(torch.bfloat16, optimizer_class, options, 6)
    module = model()
    optimizer = MasterWeights(module.parameters(), optimizer_class, **options)
    train(module, optimizer, 3)
    resumed = model(seed=5)
    other = MasterWeights(resumed.parameters(), optimizer_class, lr=9.0)
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups is other.inner.param_groups and other.param_groups[0]["lr"] == options["lr"]
    assert same(train(resumed, other, 3, skip=3), whole)


def test_states_go_to_the_plain_optimizer_and_come_from_it():
    optimizer_class, options = OPTIMIZERS["adamw"]
    module = model(torch.float32)
    plain = optimizer_class(module.parameters(), **options)
    train(module, plain, 2)
    small = model(torch.bfloat16)
    small.load_state_dict(module.state_dict())
    wrapped = MasterWeights(small.parameters(), optimizer_class, **options)
    wrapped.load_state_dict(plain.state_dict())
    assert same(values(small), [p.bfloat16() for p in values(module)])
    train(small, wrapped, 1)
    back = optimizer_class(module.parameters(), lr=9.0)
    back.load_state_dict(wrapped.state_dict())
    first = next(iter(module.parameters()))
    assert back.state[first]["step"] == 3 and back.param_groups[0]["lr"] == options["lr"]


def test_a_state_of_another_model_is_refused():
    optimizer = MasterWeights(model().parameters(), torch.optim.SGD, lr=1.0)
    state = MasterWeights(nn.Linear(2, 2).bfloat16().parameters(), torch.optim.SGD, lr=1.0).state_dict()
    with pytest.raises(ValueError, match=r"this state has 2 masters, whose shapes do not fit these 4 parameters"):
        optimizer.load_state_dict(state)


def test_loaded_weights_are_kept_if_the_masters_take_them_over():
    module, other = model(), model(seed=5)
    optimizer = MasterWeights(module.parameters(), torch.optim.SGD, lr=1.0)
    module.load_state_dict(other.state_dict())
    optimizer.copy_model_to_masters()
    optimizer.zero_grad()
    optimizer.step()
    assert same(values(module), values(other))


# Scalers and memory.


@pytest.mark.parametrize(
    "make", [GradScaler, lambda **options: torch.amp.GradScaler("cpu", **options)], ids=["ours", "torch's"]
)
def test_a_scaler_unscales_the_masters_gradients(make):
    """In float16: one step overflows and is skipped; the other is the same as without a scaler."""

    def run(scaler):
        weight = nn.Parameter(torch.ones(3).half())
        optimizer = MasterWeights([weight], torch.optim.SGD, lr=2.0**-6)
        for coefficient in (1.5, 2.0**10):
            optimizer.zero_grad()
            scaler.scale((weight * coefficient).float().sum()).backward()
            optimizer.copy_gradients_to_masters()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_([master for _, master in optimizer.pairs], 1.0)
            scaler.step(optimizer)
            scaler.update()
        return weight.tolist(), scaler.get_scale()

    weight, scale = run(make(init_scale=2.0**9))
    assert scale == 2.0**8
    clipped = 1 - 2.0**-6 / 3**0.5
    assert weight == torch.tensor([clipped] * 3).half().tolist()


def test_a_scaler_that_finds_no_gradients_says_what_is_missing():
    weight = nn.Parameter(torch.ones(3).half())
    optimizer, scaler = MasterWeights([weight], torch.optim.SGD, lr=1.0), GradScaler()
    scaler.scale(weight.float().sum()).backward()
    with pytest.raises(RuntimeError, match=r"With MasterWeights, call copy_gradients_to_masters\(\) after backward"):
        scaler.step(optimizer)
    theirs = torch.amp.GradScaler("cpu")
    theirs.scale(weight.float().sum()).backward()
    with pytest.raises(AssertionError, match="No inf checks"):
        theirs.step(optimizer)


def test_bytes_per_parameter():
    count = 5000
    for optimizer_class, options, moments in (
        (torch.optim.SGD, {}, 0),
        (torch.optim.Adam, {"foreach": False}, 8),
    ):
        weight = nn.Parameter(torch.ones(count).bfloat16())
        weight.grad = torch.ones_like(weight)  # 2 and 2, before the ledger
        with StorageLedger() as ledger:
            optimizer = MasterWeights([weight], optimizer_class, lr=0.1, **options)
            assert ledger.now == 4 * count
            optimizer.copy_gradients_to_masters()
            assert ledger.now == (4 + 4) * count
            optimizer.step()
            assert ledger.now // count == 4 + moments
            assert ledger.peak // count >= 4 + 4 + moments
        own = nn.Parameter(torch.ones(count))
        with StorageLedger() as ledger:
            MasterWeights([own], optimizer_class, lr=0.1)
            assert ledger.now == 0
