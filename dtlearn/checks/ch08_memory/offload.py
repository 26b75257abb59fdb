"""ch08.offload: steps of a small model with attention, whose saved tensors go to a host that notes what it is given.

The host is emulated: NumPy holds its bytes, which a ledger of tensors does not see. In the last step of several it
forgets signs, so that the gradients tell whether what it gives back is used.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, difference, rules
from dtlearn.runtime.record.record import Record

from ..own_work import find_forbidden

_CASES: dict[str, dict[str, Any]] = {
    "one step": {"steps": 1, "min_bytes": 1_000},
    "several steps": {"steps": 3, "min_bytes": 1_000},
    "large storages only": {"steps": 2, "min_bytes": 8_192},
}


def inputs(case: Case) -> Given:
    given: Given = []
    for rank in range(case.world_size):
        g = case.generator(rank)
        x = torch.randn(case.params["steps"], 64, 32, generator=g)
        weights = torch.randn(2, 5, 32, 32, generator=g) / 6
        index = torch.randint(40, (case.params["steps"], 64), generator=g)
        seed = int(torch.randint(10**6, (), generator=g))
        table = torch.randn(40, 32, generator=g)
        job = {"seed": seed, "min_bytes": case.params["min_bytes"]}
        given.append({"x": x, "weights": weights, "index": index, "table": table, **job})
    return given


def on_rank(answer: Any, x: Any, weights: Any, index: Any, table: Any, seed: int, min_bytes: int) -> Any:
    import gc
    import weakref

    from dtlearn.memory.ledger.storage_ledger import StorageLedger

    layers = [[torch.nn.Parameter(w.clone()) for w in layer] for layer in weights]
    parameters = [torch.nn.Parameter(table.clone()), *(w for layer in layers for w in layer)]
    own = {p.untyped_storage()._cdata for p in parameters}
    seen: dict[int, Any] = {}
    puts = {"new": 0, "new bytes": 0, "parameter": 0, "small": 0, "again": 0, "gets": 0}
    held_there, forgets, layouts = [0], [False], set[str]()

    class Copy:
        data: Any

    class Host:
        def put(self, storage: Any) -> Any:
            if not isinstance(storage, torch.UntypedStorage):
                raise ValueError(f"host.put takes a storage, tensor.untyped_storage(); got {type(storage).__name__}")
            before, size = seen.get(storage._cdata), storage.nbytes()
            kind = "again" if before is not None and before() is storage else "new"
            kind = "parameter" if storage._cdata in own else "small" if size < min_bytes else kind
            puts[kind] += 1
            puts["new bytes"] += size * (kind == "new")
            seen[storage._cdata] = weakref.ref(storage)
            copy = Copy()
            copy.data = torch.empty(0, dtype=torch.uint8).set_(storage).numpy().copy()
            held_there[0] += size
            weakref.finalize(copy, lambda: held_there.__setitem__(0, held_there[0] - size))
            return copy

        def get(self, copy: Any) -> Any:
            if not isinstance(copy, Copy):
                raise ValueError(f"host.get takes what host.put returned; got {type(copy).__name__}")
            puts["gets"] += 1
            new = torch.empty(copy.data.size, dtype=torch.uint8)
            new.numpy()[:] = copy.data
            if forgets[0] and copy.data.size % 4 == 0:
                new.view(torch.int32).bitwise_and_(0x7FFF7FFF)  # the signs of floats of 4 bytes and of 2
            return new.untyped_storage()

    def loss_of(x: Any, index: Any) -> Any:
        for wq, wk, wv, wo, w in layers:
            h = torch.nn.functional.layer_norm(x, (32,))  # statistics of 256 bytes
            q, k, v = h @ wq, h @ wk, h @ wv
            y = torch.softmax(q @ k.t() / 6, -1) @ v
            y = torch.tanh(y @ wo)
            y = y * (torch.rand(y.shape) < 0.8)
            y = torch.nn.functional.linear(y, w)
            x = x + torch.tanh(y.bfloat16()).float()
        x = x * torch.nn.functional.embedding(index, parameters[0])
        return (x[:, :2] * x[:, 2:4]).sum(1).square().mean()  # views of one storage

    torch.manual_seed(seed)
    steps, known = [], 0  # bytes of what the notes have
    with StorageLedger() as ledger:
        hooks = answer(Host(), parameters, min_bytes)

        def layout(tensor: Any) -> tuple[str, str, str]:
            strides = [s for s, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]
            return str(tensor.dtype), str(list(tensor.shape)), str(strides)

        def pack(tensor: Any) -> Any:
            return hooks[0](tensor), layout(tensor)

        def unpack(packed: Any) -> Any:
            made = hooks[1](packed[0])
            before, now = packed[1], layout(made)
            for name, wanted, got in zip(("dtype", "shape", "strides"), before, now, strict=True):
                layouts.update({f"the {name} {got}, and {wanted} was packed"} if got != wanted else ())
            return made

        for number, (one, places) in enumerate(zip(x, index, strict=True)):
            forgets[0] = number > 0 and number == len(x) - 1
            puts.update(dict.fromkeys(puts, 0))
            before = ledger.now
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                loss = loss_of(one.clone(), places.clone())
            note: dict[str, Any] = {"held": ledger.now - before, "packed": dict(puts), "there": held_there[0]}
            loss.backward()
            gradients = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in parameters]
            note |= {"loss": loss.item(), "gradients": gradients, "gets": puts["gets"]}
            note |= {"layouts": sorted(layouts)}
            del loss
            for p in parameters:
                p.grad = None
            known += sum(g.nbytes for g in gradients)
            if held_there[0] or ledger.now > known:
                gc.collect()  # only where something stays: it takes the judge, who runs this too, 0.15 s
            steps.append({**note, "left": held_there[0], "device": ledger.now - known})
    return steps


def offload(host: Any, parameters: Sequence[torch.Tensor], min_bytes: int) -> Any:
    """A right answer, for the figures of the judge."""
    stay, copies = {p.untyped_storage() for p in parameters}, weakref.WeakKeyDictionary[Any, Any]()

    def pack(tensor: torch.Tensor) -> Any:
        storage = tensor.untyped_storage()
        if storage in stay or storage.nbytes() < min_bytes:
            return tensor
        copies[storage] = copies.get(storage) or host.put(storage)
        return copies[storage], tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()

    def unpack(packed: Any) -> torch.Tensor:
        if isinstance(packed, torch.Tensor):
            return packed
        return torch.empty(0, dtype=packed[1]).set_(host.get(packed[0]), *packed[2:])

    return pack, unpack


def as_it_is(host: Any, parameters: Sequence[torch.Tensor], min_bytes: int) -> Any:
    """Hooks that leave everything where it is."""
    return (lambda tensor: tensor), (lambda tensor: tensor)


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    with torch.random.fork_rng():
        for rank, (i, steps) in enumerate(zip(given, got, strict=True)):
            right, plain = on_rank(offload, **i), on_rank(as_it_is, **i)
            for number, (one, best, without) in enumerate(zip(steps, right, plain, strict=True)):
                if found := _judged(one, best, without, i["min_bytes"]):
                    return Finding(found[0], f"rank {rank}, step {number + 1}: {found[1]}", rank)
    return None


def _judged(one: dict[str, Any], best: dict[str, Any], without: dict[str, Any], least: int) -> tuple[str, str] | None:
    """What is wrong in one step: a code and what to say. `best`: of a right answer; `without`: nothing is moved."""
    packed, wanted = one["packed"], best["packed"]
    if not any(packed[kind] for kind in ("new", "parameter", "small", "again")):
        return "DTL-RULE-STAYED", f"nothing was put on the host, and {one['held']:,} bytes are held on the device"
    if packed["parameter"]:
        text = f"{packed['parameter']} storages of parameters were put on the host. They stay on the device anyway; "
        return "DTL-RULE-PARAMETERS", f"{text}a transposed weight has the storage of the weight"
    if packed["small"]:
        return "DTL-RULE-SMALL", f"{packed['small']} storages of fewer than {least:,} bytes were put on the host"
    if packed["again"]:
        text = f"{packed['again']} storages were put on the host again while they still lived: several operations save "
        return "DTL-RULE-COPIED-AGAIN", f"{text}one tensor, or views of one storage"
    new, needed = packed["new"], wanted["new"]
    if new < needed and one["held"] > best["held"] + 2_000:
        text = (
            f"{new} storages were put on the host, and {needed} are of {least:,} bytes or more: {one['held']:,} bytes "
        )
        text += f"are held on the device; {best['held']:,} have to be. A small view counts as large as its storage, of "
        return "DTL-RULE-STAYED", f"{text}whatever dtype it is"
    if new < needed:
        text = (
            f"{new} storages were put on the host, and {needed} had to be, so that the copies of others stand in for "
        )
        text += "them: something that a storage has, such as its address or its id, is taken for the storage. When a "
        return "DTL-VALUE-STALE-COPY", f"{text}storage is gone, a new one may have the same"
    if one["held"] > best["held"] + 2_000:
        text = (
            f"{one['held']:,} bytes are held on the device between forward and backward; {best['held']:,} have to be "
        )
        return "DTL-RULE-HELD", f"{text}(without offload {without['held']:,}): something still keeps what was copied"
    if not one["gets"]:
        return "DTL-RULE-HELD", "nothing was fetched from the host in backward"
    if one["layouts"]:
        return "DTL-VALUE-LAYOUT", f"unpack returned a tensor with {one['layouts'][0]}"
    forgot = difference(without["gradients"], best["gradients"], 1e-4, 1e-6)
    if forgot and not difference(without["gradients"], one["gradients"], 1e-4, 1e-6):
        text = "backward did not use what the host gave back: another copy of the activations was kept, in a memory "
        return "DTL-RULE-HELD", f"{text}that is neither the host's nor counted"
    if found := difference(best["gradients"], one["gradients"], 1e-4, 1e-6, "gradients"):
        return (
            found.code,
            f"the gradients are not those without offload, though the right storages were copied: {found.text}",
        )
    if one["left"]:
        text = (
            f"after backward the host still has {one['left']:,} bytes: something keeps the copies, such as a list or "
        )
        return "DTL-RULE-HOST-NOT-FREED", f"{text}a dictionary. Autograd keeps what pack returns, and that is enough"
    if one["device"] > best["device"] + 1_000:
        text = f"after backward {one['device']:,} bytes are still held on the device: something keeps what unpack made"
        return "DTL-RULE-NOT-FREED", text
    return None


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run that raised: what is special in it."""
    saved = "saved are float32, bfloat16, integer and bool tensors, some of them transposed or views"
    return f"{saved}; a new storage may have the address of one that is gone"


def without_torchs(source: str) -> Finding | None:
    """A rule on the text: no offload of torch."""
    why = "it is torch's answer. Write your own here"
    return find_forbidden(source, {"torch.autograd.graph.save_on_cpu": why})


CHECK = Check(
    on_rank,
    inputs,
    None,
    cases=_CASES,
    verify=verify,
    why=why,
    rules=[rules.most_messages("0")],
    reads=[without_torchs],
)
