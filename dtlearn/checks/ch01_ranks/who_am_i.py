"""ch01.who_am_i: each of the ranks plays one process of a larger job, drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake
from dtlearn.runtime.record.record import Record

# Processes on each machine, and GPUs of every machine. No number of processes is 8, so that a guess from 8 shows.
_JOBS: dict[str, dict[str, Any]] = {
    "three unequal machines": {"processes": [3, 6, 2], "gpus": 8},
    "fewer GPUs than processes": {"processes": [6, 6], "gpus": 4},
    "one machine": {"processes": [7], "gpus": 7},
    "no launcher": {"processes": None, "gpus": 2},
    "no launcher, no GPU": {"processes": None, "gpus": 0},
}

_NAMES = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


def inputs(case: Case) -> Given:
    places = [(node, local) for node, n in enumerate(case.params["processes"] or []) for local in range(n)]
    size, given = len(places), []
    # The last process is always played: there RANK and LOCAL_RANK differ most. And the first: it has a GPU of its own
    # number even where there are too few.
    chosen = torch.randperm(max(size, 1), generator=case.generator()).tolist()
    chosen = [size - 1, 0, *(r for r in chosen if r not in (size - 1, 0))]
    for player in range(case.world_size):
        env = {"PATH": "/usr/bin", "OMP_NUM_THREADS": "1"}
        if size:
            rank = chosen[player % size]
            node, local = places[rank]
            here = case.params["processes"][node]
            numbers = {"RANK": rank, "LOCAL_RANK": local, "GROUP_RANK": node, "WORLD_SIZE": size}
            env |= {name: str(number) for name, number in {**numbers, "LOCAL_WORLD_SIZE": here}.items()}
            env |= {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
        given.append({"env": env, "gpus": case.params["gpus"]})
    return given


def on_rank(answer: Any, env: Any, gpus: int) -> Any:
    return answer(env, gpus)


def expected(case: Case, given: Given) -> list[dict[str, int | str]]:
    return [_place(i["env"], i["gpus"]) for i in given]


def _place(env: dict[str, str], gpus: int) -> dict[str, int | str]:
    fits = gpus >= int(env.get("LOCAL_WORLD_SIZE", 1))
    names = {"rank": ("RANK", 0), "world_size": ("WORLD_SIZE", 1), "node_rank": ("GROUP_RANK", 0)}
    place: dict[str, int | str] = {key: int(env.get(name, default)) for key, (name, default) in names.items()}
    return {**place, "device": f"cuda:{env.get('LOCAL_RANK', 0)}" if fits else "cpu"}


def mistakes(case: Case, given: Given) -> list[Mistake]:
    def like(change: Callable[[dict[str, str], int], dict[str, int | str]]) -> list[dict[str, int | str]]:
        return [{**_place(i["env"], i["gpus"]), **change(i["env"], i["gpus"])} for i in given]

    def number(env: dict[str, str], name: str) -> int:
        return int(env.get(name, 1 if "SIZE" in name else 0))

    def cuda(index: Callable[[dict[str, str], int], int]) -> list[dict[str, int | str]]:
        fits = [i["gpus"] >= number(i["env"], "LOCAL_WORLD_SIZE") for i in given]
        made = like(lambda env, gpus: {"device": f"cuda:{index(env, gpus)}"})
        return [m if ok else e for m, e, ok in zip(made, expected(case, given), fits, strict=True)]

    def node(divisor: Callable[[dict[str, str], int], int]) -> list[dict[str, int | str]]:
        return like(lambda env, gpus: {"node_rank": number(env, "RANK") // max(divisor(env, gpus), 1)})

    env, gpus = given[0]["env"], given[0]["gpus"]
    here = number(env, "LOCAL_WORLD_SIZE")
    processes = f"{here} process{'es' * (here != 1)}"
    both = f"RANK={env.get('RANK')} and LOCAL_RANK={env.get('LOCAL_RANK')}"
    size = case.world_size  # of the job that grades
    own = [{"rank": r, "world_size": size, "device": f"cuda:{r}" if gpus >= size else "cpu"} for r in range(size)]
    return [
        *(
            Mistake(
                "DTL-VALUE-OWN-ENV",
                f"this is the place of the process that runs your function, rank 0 of {size}: it was read from "
                "os.environ, or asked of dist; the environment to read is the argument `env`",
                [{**one, "node_rank": 0, "device": device or one["device"]} for one in own],
            )
            for device in ("", "cpu", "cuda:0")
        ),
        Mistake(
            "DTL-VALUE-LOCAL-RANK",
            f"the device comes from RANK: {both}, and it took cuda:{env.get('RANK')} on a machine with {gpus} GPUs",
            cuda(lambda env, gpus: number(env, "RANK")),
        ),
        *(
            Mistake(
                "DTL-VALUE-GUESSED-RANK",
                f"the device is RANK modulo {name}: a guess, wrong when machines differ; the launcher says LOCAL_RANK",
                cuda(lambda env, gpus, by=by: number(env, "RANK") % max(by(env, gpus), 1)),  # type: ignore[misc]
            )
            for name, by in (
                ("the number of GPUs", lambda env, gpus: gpus),
                ("8", lambda env, gpus: 8),
                ("LOCAL_WORLD_SIZE", lambda env, gpus: number(env, "LOCAL_WORLD_SIZE")),
            )
        ),
        *(
            Mistake(
                "DTL-VALUE-GUESSED-NODE",
                f"node_rank is RANK // {name}: that needs equally many processes everywhere; GROUP_RANK says it",
                node(by),
            )
            for name, by in (
                ("LOCAL_WORLD_SIZE", lambda env, gpus: number(env, "LOCAL_WORLD_SIZE")),
                ("the number of GPUs", lambda env, gpus: gpus),
                ("8", lambda env, gpus: 8),
            )
        ),
        Mistake(
            "DTL-VALUE-NOT-READ",
            "node_rank is 0 for every process: the launcher's name for it is GROUP_RANK, and no other is set",
            like(lambda env, gpus: {"node_rank": 0}),
        ),
        Mistake(
            "DTL-VALUE-LOCAL-SIZE",
            f"world_size is {here}, the processes of this machine (LOCAL_WORLD_SIZE); the job has WORLD_SIZE="
            f"{env.get('WORLD_SIZE')}",
            like(lambda env, gpus: {"world_size": number(env, "LOCAL_WORLD_SIZE")}),
        ),
        Mistake(
            "DTL-VALUE-CPU",
            f"the cpu, although its machine has {gpus} GPUs for {processes}"
            + (": as many GPUs as processes are enough" if gpus == here else "")
            + ". Only the argument `gpus` and LOCAL_WORLD_SIZE count (1 without a launcher): not the processes of the "
            "whole job, nor the GPUs of the computer that grades",
            like(lambda env, gpus: {"device": "cpu"}),
        ),
        Mistake(
            "DTL-VALUE-NO-GPU",
            f"a cuda device, but its machine has {gpus} GPUs for {processes}: take cpu",
            like(lambda env, gpus: {"device": f"cuda:{number(env, 'LOCAL_RANK')}"}),
        ),
        Mistake(
            "DTL-VALUE-NO-GPU",
            f"a process took a GPU because its LOCAL_RANK is below {gpus}, the number of GPUs; there are fewer GPUs "
            "than processes, so every process of the machine takes the cpu",
            like(lambda env, gpus: {"device": f"cuda:{n}" if (n := number(env, "LOCAL_RANK")) < gpus else "cpu"}),
        ),
        Mistake(
            "DTL-VALUE-SHARED-GPU",
            f"{processes} share {gpus} GPUs: the device is LOCAL_RANK modulo {gpus}; where there are fewer GPUs than "
            "processes, every process of the machine takes the cpu",
            like(lambda env, gpus: {"device": f"cuda:{number(env, 'LOCAL_RANK') % max(gpus, 1)}"}),
        ),
    ]


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Whole numbers? A float of the same value would count as equal."""
    for rank, place in enumerate(got):
        for key in ("rank", "world_size", "node_rank"):
            if type(place[key]) is not int:
                text = f"the result[{key!r}] should be a whole number; it is {place[key]!r}"
                return Finding("DTL-VALUE-TYPE", text, rank, None, "int(...) makes a whole number of a text.")
    return None


def task_text(case: Case, given: Given, rank: int) -> str:
    env, gpus = given[rank]["env"], given[rank]["gpus"]
    names = [f"{name}={env[name]}" for name in _NAMES if name in env]
    return f"the environment {', '.join(names) or 'without any of the names'}, and gpus = {gpus}"


CHECK = Check(on_rank, inputs, expected, cases=_JOBS, verify=verify, mistakes=mistakes, task_text=task_text)
