"""ch15.ds_config: a plain request, then one wish more in each case, then wishes that DeepSpeed cannot grant.

A config may be written in many ways; what counts is how DeepSpeed 0.19 reads it, with its defaults. `on_rank` reads it
so; `tests/course` holds that reading against DeepSpeed's own classes, and trains with the solution's configs, where
DeepSpeed is installed.
"""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP

# Per case: what it asks for, in place of `PLAIN`. `refused`: only the refusal is looked at. `tries`:
# several requests, of which only whether they are refused. `half`: half of the replicas have a micro-batch too many.
PLAIN = {"world_size": 4, "pp": 1, "precision": "fp32", "stage": 0, "offload": "none", "clipping": 0.5}
PLAIN |= {"rule": "adamw", "device": "cuda"}
CASES: dict[str, dict[str, Any]] = {
    "one pass a step": {"passes": 1, "clipping": 2.5},
    "gradient accumulation": {"says": "global batch = micro-batch * accumulation * replicas", "world_size": 6},
    "no clipping": {
        "says": "no clipping is stated as gradient_clipping 0: a key that is left out means 1.0",
        "clipping": None,
    },
    "bf16": {"says": 'bf16 is {"bf16": {"enabled": True}}, and nothing else', "precision": "bf16"},
    "fp16 on a GPU": {"says": 'fp16 is {"fp16": {"enabled": True}}, and a GPU takes it', "precision": "fp16"},
    "ZeRO 2": {"says": "the stage stands in zero_optimization", "stage": 2},
    "Adam with L2": {
        "says": 'DeepSpeed makes AdamW of the type "Adam", too: adam_w_mode has to be False for L2',
        "rule": "adam",
    },
    "the optimizer offloaded": {
        "says": "offload_optimizer, with the device cpu, stands in zero_optimization, and offload_param does not",
        **{"stage": 1, "offload": "optimizer"},
    },
    "the parameters offloaded": {
        "says": "offloaded parameters stand in offload_param, beside offload_optimizer",
        **{"stage": 3, "offload": "parameters"},
    },
    "a pipeline": {
        "says": "the ranks of one pipeline are one replica: their samples count once",
        **{"world_size": 12, "pp": 3, "stage": 1, "precision": "bf16", "passes": 2},
    },
    "two requests": {
        "says": "two configs share a dict, so a change of one changes the other: make every dict anew",
        **{"stage": 3, "offload": "parameters", "precision": "bf16", "twice": True},
    },
    "a batch that does not fit": {
        "says": "expected a ValueError for a global batch that micro-batches and replicas do not divide",
        **{"refused": True, "half": True},
    },
    "fp16 on a processor": {
        "says": "expected a ValueError for fp16 on a processor",
        **{"refused": True, "precision": "fp16", "device": "cpu"},
    },
    "bf16 on a processor": {"says": "a processor takes bf16", "precision": "bf16", "device": "cpu"},
    "ZeRO 2 and 3 with a pipeline": {
        "says": "expected a ValueError for ZeRO 2 and 3 with a pipeline: PipelineEngine asserts a lower stage",
        **{"refused": True, "tries": {"ZeRO 2": {"pp": 2, "stage": 2}, "ZeRO 3": {"pp": 4, "stage": 3}}},
    },
    "offload without ZeRO": {
        "says": "expected a ValueError for an offloaded optimizer in stage 0, where the key is ignored",
        **{"refused": True, "offload": "optimizer"},
    },
    "parameters offloaded below stage 3": {
        "says": "expected a ValueError for offloaded parameters below stage 3, where the key is ignored",
        **{"refused": True, "tries": {f"ZeRO {n}": {"stage": n, "offload": "parameters"} for n in (0, 1, 2)}},
    },
    "what goes together": {
        "says": "no rule forbids this: it is refused all the same",
        "tries": {
            "a pipeline without ZeRO": {"pp": 2},
            "a pipeline in fp16": {"pp": 2, "stage": 1, "precision": "fp16"},
            **{f"the optimizer offloaded in ZeRO {n}": {"stage": n, "offload": "optimizer"} for n in (2, 3)},
        },
    },
}
REPLICAS, STEPS = "replicas = world_size // pp", '_accumulation_steps": global_batch // (micro_batch * replicas)'
CLIP, TRAIN = '"gradient_clipping": 0.0 if clipping is None else clipping,', '"train_batch_size": global_batch,'
PRECISION, ZERO = 'config[precision] = {"enabled": True}', 'zero: dict[str, Any] = {"stage": stage}'
NOT_FP32, MODE = 'if precision != "fp32":', '"adam_w_mode": rule == "adamw"'
OFFLOAD, PARAM = 'zero["offload_optimizer"] = {"device": "cpu"}', 'zero["offload_param"] = {"device": "cpu"}'
WITH_OPTIMIZER, TORCH = 'if offload != "none":', '"torch_adam": True, '
EDITS = (
    Edit("the accumulation stays 1 while the global batch holds more passes", {STEPS: '_accumulation_steps": 1'}),
    Edit("the global batch is one replica's: all count", {TRAIN: '"train_batch_size": global_batch // replicas,'}),
    Edit("the accumulation leaves out the replicas", {STEPS: '_accumulation_steps": global_batch // micro_batch'}),
    Edit("clipping is not stated where none is wanted: its default is 1.0, not 0",
         {CLIP: '**({} if clipping is None else {"gradient_clipping": clipping}),'}),
    Edit("clipping is never stated: its default is 1.0", {CLIP: ""}),
    Edit("no clipping is written as None, which is not a norm", {CLIP: '"gradient_clipping": clipping,'}),
    Edit("the norm stands among the optimizer's params as max_grad_norm, which DeepSpeed refuses",
         {CLIP: "", TORCH: '"torch_adam": True, "max_grad_norm": clipping or 0.0, '}),
    Edit("torch_adam is not stated: DeepSpeed compiles its own Adam at the first start", {TORCH: ""}),
    Edit("lr and weight_decay are left out of the params", {'"lr": lr, "weight_decay": weight_decay, ': ""}),
    Edit("the precision is not enabled: True is needed, and not the default", {PRECISION: "config[precision] = {}"}),
    Edit("the key bfloat16 is the old one: it is bf16 now",
         {PRECISION: 'config["bfloat16" if precision == "bf16" else precision] = {"enabled": True}'}),
    Edit("bf16 stands for fp16, too: their ranges differ, and only fp16 scales the loss",
         {PRECISION: 'config["bf16"] = {"enabled": True}'}),
    Edit("fp16 is enabled beside bf16: DeepSpeed allows one of them",
         {PRECISION: 'config.update({"bf16": {"enabled": True}, "fp16": {"enabled": True}})'}),
    Edit("the stage is left out: without it there is no ZeRO", {ZERO: "zero: dict[str, Any] = {}"}),
    Edit('the type "Adam" alone is AdamW in DeepSpeed: adam_w_mode is True by default', {f", {MODE}": ""}),
    Edit("adam_w_mode is the wrong way round", {MODE: '"adam_w_mode": rule == "adam"'}),
    Edit("the old switch cpu_offload is deprecated: write offload_optimizer", {OFFLOAD: 'zero["cpu_offload"] = True'}),
    Edit("offload_optimizer stands beside zero_optimization, where DeepSpeed does not look: it belongs inside",
         {OFFLOAD: "pass", '    if precision != "fp32":': '    if offload != "none":\n'
          '        config["offload_optimizer"] = {"device": "cpu"}\n    if precision != "fp32":'}),
    Edit("only the parameters are offloaded: the optimizer is meant, too",
         {WITH_OPTIMIZER: 'if offload == "optimizer":'}),
    Edit("the parameters stay on the GPU", {PARAM: "pass"}),
    Edit("the stages of a pipeline are counted as replicas", {REPLICAS: "replicas = world_size"}),
    Edit("every call returns the same inner dict: two configs share it",
         {ZERO: 'zero = ds_config.__dict__.setdefault("zero", {})\n    zero.clear()\n    zero["stage"] = stage'}),
    Edit("fp16 is let through on a processor", {'if precision == "fp16" and device == "cpu":': "if False:"}),
    Edit("all 16-bit formats are refused on a processor: bf16 runs there",
         {'if precision == "fp16" and device': 'if precision != "fp32" and device'}),
    Edit("fp16 is refused on a GPU, too", {'if precision == "fp16" and device == "cpu":': 'if precision == "fp16":'}),
    Edit("ZeRO 2 is let through with a pipeline", {"if pp > 1 and stage > 1:": "if pp > 1 and stage > 2:"}),
    Edit("ZeRO 3 is let through with a pipeline", {"if pp > 1 and stage > 1:": "if pp > 1 and stage == 2:"}),
    Edit("a pipeline without ZeRO is refused: stages 0 and 1 go", {"if pp > 1 and stage > 1:": "if pp > 1 != stage:"}),
    Edit("ZeRO 1 is refused with a pipeline: it is the one that goes", {"stage > 1:": "stage > 0:"}),
    Edit("offload is let through without ZeRO", {"if stage < least:": "if stage and stage < least:"}),
    Edit("offloaded parameters are let through below stage 3", {'"parameters": 3}': '"parameters": 1}'}),
    Edit("offloaded parameters are let through without ZeRO, or in stage 1: from stage 3 on",
         {"if stage < least:": 'if stage < least and (stage == 2 or offload == "optimizer"):'}),
    Edit("a batch is let through that micro-batch and replicas divide one by one: their product has to",
         {"if global_batch % (micro_batch * replicas):": "if global_batch % micro_batch or global_batch % replicas:"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, p = case.generator(), case.params
    micro, passes, lr, decay = (int(torch.randint(low, low + 4, (), generator=g)) for low in (3, 2, 1, 1))
    request = {**PLAIN, **{key: value for key, value in p.items() if key in PLAIN}}
    replicas, micro = request["world_size"] // request["pp"], micro * 2 if p.get("half") else micro
    batch = micro * p.get("passes", passes) * replicas + micro * replicas // 2 * p.get("half", False)
    request |= {"micro_batch": micro, "global_batch": batch, "lr": lr / 1000, "weight_decay": decay / 8}
    request["clipping"] = request["clipping"] and request["clipping"] + decay / 16  # 0.5 and more, or 2.5 and more
    control = {"refused": False, "twice": False, "tries": {}}
    return [{**request, **{key: p.get(key, default) for key, default in control.items()}}] * case.world_size


def on_rank(answer: Any, refused: bool, twice: bool, tries: Any, **request: Any) -> Any:
    from dtlearn.grading.on_rank.tools import refusal

    if tries or refused:
        said = {name: refusal(answer, **{**request, **own}).partition(" that")[0] for name, own in tries.items()}
        return said or refusal(answer, **request).partition(" that")[0]
    try:
        config = answer(**request)
    except ValueError as error:
        return f"a ValueError: {error}"
    if not isinstance(config, dict):
        return config
    if twice:
        second = [answer(**request)]
        for one in second:  # those in it follow
            second += [part for part in one.values() if isinstance(part, dict)]
        for one in second:
            one.clear()
    no_dicts = []

    def inner(key: str, of: Any) -> Any:
        if isinstance(of.get(key, {}), dict):
            return of.get(key, {})
        no_dicts.append(f"{key}: {of[key]!r}")
        return {}

    zero, optimizer = inner("zero_optimization", config), inner("optimizer", config)
    params, rules = inner("params", optimizer), {"lr": 1e-3, "weight_decay": 0.01, "torch_adam": False}
    keys = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    replicas, (train, micro, steps) = request["world_size"] // request["pp"], map(config.get, keys)
    numbers = {**{key: config[key] for key in keys if key in config}, "stage": zero.get("stage", 0)}
    no_numbers = [f"{key}: {value!r}" for key, value in numbers.items() if type(value) is not int]
    train, micro, steps = (size if type(size) is int else None for size in (train, micro, steps))
    steps = steps or (train // (micro * replicas) if train and micro else 1)
    micro = micro or (train // (steps * replicas) if train else None)
    known = {
        "config": (config, {*keys, "gradient_clipping", "bf16", "fp16", "zero_optimization", "optimizer"}),
        "zero_optimization": (zero, {"stage", "offload_optimizer", "offload_param"}),
        "optimizer": (optimizer, {"type", "params"}),
        "params": (params, {*rules, "adam_w_mode"}),
        **{key: (inner(key, config), {"enabled"}) for key in ("bf16", "fp16")},
        **{key: (inner(key, zero), {"device", "pin_memory"}) for key in ("offload_optimizer", "offload_param")},
    }
    kind = str(optimizer.get("type", "no type")).lower()
    decoupled = kind == "adamw" or params.get("adam_w_mode", True)
    others = [f"{key} in {of}" for of, (part, own) in known.items() for key in part if key not in own]
    return {
        "keys that are not in the table": ", ".join(others) or "none",
        "what should be a dict or a whole number": ", ".join(no_dicts + no_numbers) or "none",
        "samples of a step": train or (micro or 0) * steps * replicas,
        "samples of a pass": micro,
        "passes of a step": steps,
        "gradient_clipping is stated": "gradient_clipping" in config,
        "largest norm": config.get("gradient_clipping", 1.0),
        "16-bit formats": [name for name in ("bf16", "fp16") if inner(name, config).get("enabled") is True],
        "ZeRO stage": zero.get("stage", 0),
        "offloaded": [k for k in ("offload_optimizer", "offload_param") if inner(k, zero).get("device") == "cpu"],
        "optimizer": ("adamw" if decoupled else "adam") if kind in ("adam", "adamw") else kind,
        **{key: params.get(key, default) for key, default in rules.items()},
    }


def expected(case: Case, given: Given) -> list[Any]:
    """The request itself, in DeepSpeed's words."""
    r, verdict = given[0], "a ValueError" if given[0]["refused"] else "nothing was raised"
    if r["tries"] or r["refused"]:
        return [dict.fromkeys(r["tries"], verdict) or verdict] * case.world_size
    facts = {
        **dict.fromkeys(["keys that are not in the table", "what should be a dict or a whole number"], "none"),
        "samples of a step": r["global_batch"],
        "samples of a pass": r["micro_batch"],
        "passes of a step": r["global_batch"] // r["micro_batch"] // (r["world_size"] // r["pp"]),
        "gradient_clipping is stated": True,
        "largest norm": r["clipping"] or 0.0,
        "16-bit formats": [name for name in ("bf16", "fp16") if r["precision"] == name],
        "ZeRO stage": r["stage"],
        "offloaded": ["offload_optimizer", "offload_param"][: ["none", "optimizer", "parameters"].index(r["offload"])],
        "optimizer": r["rule"],
        **{"lr": r["lr"], "weight_decay": r["weight_decay"], "torch_adam": True},
    }
    return [facts] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}{case.says or 'this request is a plain one'}"


EXAMPLE = {**PLAIN, "micro_batch": 2, "global_batch": 16, "precision": "bf16", "stage": 2, "clipping": None}
EXAMPLE |= {"lr": 1e-3, "weight_decay": 0.01}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{**EXAMPLE, "refused": False, "twice": False, "tries": {}}],
    why=why,
    rules=[rules.most_messages("0")],
    reads=[no_stores],
)
