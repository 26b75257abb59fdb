"""ch08.offload: a few operations, whose saved tensors go to a host that notes what it is given.

The host is emulated: NumPy holds its bytes, which a ledger of tensors does not see.
"""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from ..own_work import find_forbidden

STALE = (
    "a storage that lives on from step to step, such as a mask, may change in between: a copy is kept only as long as "
    "autograd has it, and the next step makes another"
)
# Per case: `operations`, after x @ weight; `min_bytes`, where x has 512 bytes.
CASES: dict[str, dict[str, Any]] = {
    "one activation": {"operations": []},
    "several activations": {
        "says": "the copy of another storage is used: when a storage is gone, a new one may have its address, its id "
        "and its size. `tensor.untyped_storage()` is an object, the same one as long as the storage lives",
        "operations": ["square", "tanh", "at one address", "at one address"],
    },
    "a tensor saved by several operations": {
        "says": "a storage is not copied again as long as its copy is there",
        "operations": ["times itself"],
    },
    "a view that is transposed": {
        "says": "unpack returns a tensor with the values, shape, strides and dtype of the one that was packed",
        "operations": ["transposed"],
    },
    "a view of the last rows": {
        "says": "a view may begin in the middle of its storage: tensor.storage_offset()",
        "operations": ["last rows"],
    },
    "a small view of a large storage": {
        "says": "a small view of a large storage counts as large: all of the storage stays with it",
        "operations": ["two numbers"],
    },
    "other dtypes": {"says": "saved tensors may have any dtype", "operations": ["bfloat16", "mask of bool"]},
    "a small storage": {
        "says": "storages of fewer than min_bytes stay on the device",
        "operations": ["sum over rows"],
    },
    "exactly min_bytes": {
        "says": "a storage of exactly min_bytes goes to the host",
        "operations": [],
        "min_bytes": 512,
    },
    "the weight": {"says": "storages of parameters never go to the host", "operations": ["weight"]},
    "the weight transposed": {
        "says": "storages of parameters never go to the host: a transposed weight has the storage of the weight",
        "operations": ["weight transposed"],
    },
    "a mask that lives on, and changes": {"says": STALE, "operations": ["mask"], "steps": 2},
    "no backward pass": {
        "says": "activations stay in memory when the loss is dropped without a backward pass: a node that keeps its "
        "own result, with its graph, keeps itself alive. Detach what stays on the device",
        "operations": ["sum over rows"],
        "backward": False,
    },
    "what backward uses": {
        "says": "backward does not use what the host gives back: another copy was kept, in whatever memory",
        "operations": [],
        "forgets": True,
    },
}
SMALL, STAYS = "storage.nbytes() < min_bytes", "storage in stay or storage.nbytes() < min_bytes"
KNOWN, NOTE, MADE = "copies.get(storage)", "copies[storage] = weakref.ref(copy)", "weakref.WeakKeyDictionary()"
SET = "return torch.empty(0, dtype=dtype).set_(host.get(copy), *layout)"
EDITS = (
    Edit("nothing is put on the host: all activations stay on the device", {STAYS: "storage is not None"}),
    Edit("copies stay on the host after backward: a list or a dictionary keeps them. Autograd keeps what pack returns, "
         "and that is enough", {NOTE: f"{NOTE}; offload.kept = [*getattr(offload, 'kept', []), copy]"}),
    Edit("activations stay on the device although they are copied: a dictionary has the storages as its keys, and "
         "keeps them (weakref.WeakKeyDictionary does not)", {MADE: "{}"}),
    Edit("activations stay on the device although they are copied: what pack returns still has the tensor in it",
         {"tensor.stride()": "tensor.stride(), tensor",
          "copy, dtype, *layout = packed": "copy, dtype, *layout, _ = packed"}),
    Edit("after backward activations are on the device again: something keeps what unpack made",
         {SET: f"offload.kept = [*getattr(offload, 'kept', []), {SET.removeprefix('return ')}]\n"
               "        return offload.kept[-1]"}),
    Edit("the copy of another storage of the same size is used: `tensor.untyped_storage()` tells storages apart",
         {MADE: "{}", KNOWN: "copies.get(storage.nbytes())", NOTE: NOTE.replace("[storage]", "[storage.nbytes()]")}),
    Edit("a storage is copied for each operation that saves it: once is enough, as long as its copy is there",
         {"if copy is None:": "if True:"}),
    Edit("the strides are lost: unpack makes a contiguous tensor of the shape, with the values in another order",
         {SET: SET.replace("*layout", "*layout[:2], torch.empty(layout[1], device='meta').stride()")}),
    Edit("the place of a view in its storage is lost: tensor.storage_offset() is not always 0",
         {"tensor.storage_offset()": "0"}),
    Edit("a small view of a large storage stays on the device, and all of the storage with it: the storage's bytes "
         "count, not the tensor's", {SMALL: "tensor.nbytes < min_bytes"}),
    Edit("tensors of other dtypes than float32 stay on the device",
         {STAYS: f"tensor.dtype != torch.float32 or {STAYS}"}),
    Edit("storages of fewer than min_bytes are put on the host", {STAYS: "storage in stay"}),
    Edit("a storage of exactly min_bytes stays on the device: it goes to the host", {SMALL: SMALL.replace("<", "<=")}),
    Edit("storages of parameters are put on the host: they stay on the device anyway", {STAYS: SMALL}),
    Edit("the storage of a parameter is put on the host, as a view of it was saved: compare storages, not tensors",
         {STAYS: f"any(tensor is p for p in parameters) or {SMALL}"}),
    Edit("an old copy is used in the next step, and stays on the host until then: the dictionary keeps copies as long "
         "as their storages live, and a storage that lives on may change. Refer to the copy weakly, too",
         {"known() if known else None": "known", NOTE: "copies[storage] = copy"}),
    Edit("what stays on the device is not detached: a node that keeps its own result, with its graph, keeps itself "
         "alive, and the whole graph with all copies, when the loss is dropped without a backward pass",
         {"return tensor.detach()": "return tensor"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    given, p = list[dict[str, Any]](), case.params
    for rank in range(case.world_size):
        g = case.generator(rank)
        made = {"x": torch.randn(16, 8, generator=g), "weight": torch.randn(8, 8, generator=g) / 3}
        rest = {"min_bytes": p.get("min_bytes", 100), "mask": torch.rand(16, 8, generator=g)}
        rest |= {"steps": p.get("steps", 1), "backward": p.get("backward", True), "forgets": p.get("forgets", False)}
        given.append({**made, **rest, "operations": p["operations"]})
    return given


def on_rank(
    answer: Any, x: Any, weight: Any, min_bytes: int, mask: Any, steps: int, backward: bool, forgets: bool,
    operations: Any,
) -> Any:  # fmt: skip
    import gc
    import weakref
    from collections import Counter

    from dtlearn.memory.ledger.storage_ledger import StorageLedger

    weight, mask, there, seen = torch.nn.Parameter(weight.clone()), mask.clone(), weakref.WeakSet(), weakref.WeakSet()  # type: ignore[var-annotated]
    own, puts, layouts, facts, buffer = weight.untyped_storage(), Counter[str](), set[str](), [], x.clone().numpy()
    kinds = "storages that are missing", "storages whose copy is there", "parameters", "storages below min_bytes"
    run = {
        "square": lambda y: (y + 0).square(),
        "tanh": lambda y: y.tanh(),
        "at one address": lambda y: y * torch.from_numpy(buffer).copy_(y.detach()),
        "times itself": lambda y: y * y,
        "transposed": lambda y: (y + 0).t().square().t(),
        "last rows": lambda y: (y + 0)[4:].square(),
        "two numbers": lambda y: y + (y + 0)[1, :2].square().sum(),
        "bfloat16": lambda y: y.bfloat16().square().float(),
        "mask of bool": lambda y: torch.where(torch.arange(300).expand(16, 300)[:, :8].clone() % 3 > 0, y, 0 * y),
        "sum over rows": lambda y: y + y.sum(0).exp().tanh(),
        "weight": lambda y: y @ weight,
        "weight transposed": lambda y: torch.nn.functional.linear(y, weight),
        "mask": lambda y: y * mask,
    }

    class Copy:
        def __init__(self, storage: Any) -> None:
            self.of, self.bytes = weakref.ref(storage), torch.empty(0, dtype=torch.uint8).set_(storage).numpy().copy()

    class Host:
        def put(self, storage: Any) -> Any:
            if not isinstance(storage, torch.UntypedStorage):
                raise ValueError(f"host.put takes a storage, tensor.untyped_storage(); got {type(storage).__name__}")
            again = any(copy.of() is storage for copy in there)
            kind = kinds[2 if storage is own else 3 if storage.nbytes() < min_bytes else again]
            puts[kind] += -1 if kind == kinds[0] else 1
            there.add(copy := Copy(storage))
            return copy

        def get(self, copy: Any) -> Any:
            return torch.tensor(copy.bytes * (not forgets)).untyped_storage()

    def layout(tensor: Any) -> str:
        return f"{tensor.dtype}, the shape {list(tensor.shape)} and the strides {list(tensor.stride())}"

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage not in seen and storage is not own and storage.nbytes() >= min_bytes:
            puts[kinds[0]] += 1
            puts["bytes"] += storage.nbytes()
        seen.add(storage)
        return hooks[0](tensor), layout(tensor)

    def unpack(packed: Any) -> Any:
        made = hooks[1](packed[0])
        layouts.update({f"{layout(made)} for {packed[1]}"} if layout(made) != packed[1] else ())
        return made

    with StorageLedger() as ledger:
        mask *= 1  # the ledger knows it from here on
        hooks = answer(Host(), [weight], min_bytes)
        gc.disable()
        for _ in range(steps):
            before = ledger.now
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                y = x.clone() @ weight
                for name in operations:
                    y = run[name](y)
                loss = y.sum()
            del y
            held, _ = ledger.now - before, loss.backward() if backward else None
            del loss
            if backward and (there or ledger.now > before + 256):
                gc.collect()
            left = {"on the host": len(there), "on the device": ledger.now > before + (256 if backward else 8)}
            counts, size = {kind: puts[kind] for kind in kinds}, puts["bytes"]
            facts.append({"put on the host": counts, "kept on the device": held > size // 2, "afterwards": left})
            facts[-1] |= {"unpack makes": sorted(layouts), "gradient": weight.grad}
            weight.grad = None
            puts.clear()
            seen.clear()
            mask *= 10
        gc.enable()
    return facts


def expected(case: Case, given: Given) -> list[Any]:
    """The results of the same operations where everything that they save is copied, and nothing goes to the host."""
    results = []
    for own in given:
        plain = on_rank(lambda host, parameters, min_bytes: (lambda t: t.detach().clone(), lambda t: t), **own)
        for one in plain:
            one |= {
                "put on the host": dict.fromkeys(one["put on the host"], 0),
                "kept on the device": False,
                "unpack makes": [],
            }
            one |= {"gradient": 0 * one["gradient"]} if case.params.get("forgets") else {}
        results.append(plain)
    return results


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: what is special about its case."""
    return "saved are float32, bfloat16 and bool tensors" if case.name == "other dtypes" else ""


def without_torchs(source: str) -> Finding | None:
    """A rule on the text: no offload of torch."""
    why = "it is torch's answer. Write your own here"
    return find_forbidden(source, {"torch.autograd.graph.save_on_cpu": why})


EXAMPLE = {"x": torch.ones(250, 4), "weight": torch.eye(4), "mask": torch.ones(250, 4), "min_bytes": 1_000, "steps": 1}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{**EXAMPLE, "backward": True, "forgets": False, "operations": ["times itself"]}],
    why=why,
    rules=[rules.most_messages("0")],
    reads=[without_torchs],
    rtol=1e-4,
    atol=1e-5,
)
