"""ch01.who_am_i: each of the ranks plays one process of a larger job, the last process first."""

from __future__ import annotations

from typing import Any

from dtlearn.grading import Case, Check, Edit, Finding, Given
from dtlearn.runtime.record.record import Record

ALONE = "without a launcher none of the names is set: the process is rank 0 of 1, on node 0"
# Processes of each machine, and GPUs of every machine. On one machine a rank plays another process than itself.
CASES: dict[str, dict[str, Any]] = {
    "one machine": {"processes": [5], "gpus": 8},
    "two machines": {
        "says": "a job may have several machines: the device is that of LOCAL_RANK, and node_rank is GROUP_RANK",
        "processes": [3, 3],
        "gpus": 4,
    },
    "machines with different numbers of processes": {
        "says": "machines may run different numbers of processes: read each number, compute none from the others",
        "processes": [3, 6, 2],
        "gpus": 8,
    },
    "as many GPUs as processes": {
        "says": "as many GPUs as processes are enough: every process takes its GPU",
        "processes": [5],
        "gpus": 5,
    },
    "fewer GPUs than processes": {
        "says": "where a machine has fewer GPUs than processes of this job, every process there takes the cpu",
        "processes": [6, 6],
        "gpus": 4,
    },
    "no launcher": {"says": f"{ALONE}, with the first GPU", "gpus": 2},
    "no launcher, no GPU": {"says": f"{ALONE}, and takes the cpu where there is no GPU", "gpus": 0},
}
NAMES = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
LOCAL, NODE, SIZE = 'int(env.get("LOCAL_RANK", 0))', 'int(env.get("GROUP_RANK", 0))', '"world_size": int(env.get("WORLD'
FITS, CUDA, RANK = "gpus >= processes_here", "cuda:{local_rank}", "int(env.get('RANK', 0))"
EDITS = (
    Edit("this is the place of the process that runs your function: it was read from os.environ, or dist told it; the "
         "environment to read is the argument `env`",
         {f"    local_rank = {LOCAL}": f"    import os\n\n    env = os.environ\n    local_rank = {LOCAL}"}),
    Edit("the device comes from RANK, which counts the processes of the whole job: the launcher says LOCAL_RANK",
         {CUDA: f"cuda:{{{RANK}}}"}),
    Edit("the device is RANK modulo the number of GPUs: a guess, wrong when machines differ; the launcher says "
         "LOCAL_RANK", {CUDA: f"cuda:{{{RANK} % gpus}}"}),
    Edit("the device is RANK modulo LOCAL_WORLD_SIZE: a guess, wrong when machines differ; the launcher says "
         "LOCAL_RANK", {CUDA: f"cuda:{{{RANK} % processes_here}}"}),
    Edit("node_rank is RANK // LOCAL_WORLD_SIZE: that needs equally many processes everywhere; GROUP_RANK says it",
         {NODE: f"{RANK} // processes_here"}),
    Edit("node_rank is RANK divided by the number of GPUs: a machine may run fewer processes; GROUP_RANK says it",
         {NODE: f"{RANK} // max(gpus, 1)"}),
    Edit("node_rank is 0 for every process: the launcher's name for it is GROUP_RANK, and no other is set",
         {NODE: NODE.replace("GROUP", "NODE")}),
    Edit("world_size is the number of processes of this machine, LOCAL_WORLD_SIZE: that of the job is WORLD_SIZE",
         {SIZE: SIZE.replace("WORLD", "LOCAL_WORLD")}),
    Edit("the GPUs of a machine are compared with the processes of the whole job, WORLD_SIZE: those of the machine "
         "are LOCAL_WORLD_SIZE", {FITS: 'gpus >= int(env.get("WORLD_SIZE", 1))'}),
    Edit("the cpu, although its machine has a GPU for each process: as many GPUs as processes are enough",
         {FITS: "gpus > processes_here"}),
    Edit("a cuda device, although its machine has fewer GPUs than processes: take cpu", {FITS: "True"}),
    Edit("a process took a GPU because its LOCAL_RANK is below the number of GPUs; there are fewer GPUs than "
         "processes, so every process of the machine takes the cpu", {FITS: "local_rank < gpus"}),
    Edit("processes share GPUs, LOCAL_RANK modulo their number; where there are fewer GPUs than processes, every "
         "process of the machine takes the cpu", {CUDA: "cuda:{local_rank % gpus}", FITS: "gpus"}),
    Edit("the cpu without a launcher, although there is a GPU: take the first one",
         {FITS: f'{FITS} and "RANK" in env'}),
    Edit("the cpu, although its machine has more GPUs than processes: the argument `gpus` counts, not the GPUs of the "
         "computer that grades", {FITS: "False"}),
)  # fmt: skip


def played(case: Case) -> list[tuple[int, int, int, int]]:
    """The process whose part each rank plays: (rank, node, local rank, number of processes on the node)."""
    processes = case.params.get("processes", [1])
    places = [(node, local, n) for node, n in enumerate(processes) for local in range(n)]
    table = [(rank, *place) for rank, place in enumerate(places)]
    return [table[-1 - player % len(table)] for player in range(case.world_size)]


def inputs(case: Case) -> Given:
    given = []
    for rank, node, local, here in played(case):
        env = {"PATH": "/usr/bin", "OMP_NUM_THREADS": "1"}
        if "processes" in case.params:
            numbers = zip(NAMES, (rank, local, node, sum(case.params["processes"]), here), strict=True)
            env |= {name: str(number) for name, number in numbers}
            env |= {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
        given.append({"env": env, "gpus": case.params["gpus"]})
    return given


def on_rank(answer: Any, env: Any, gpus: int) -> Any:
    return answer(env, gpus)


def expected(case: Case, given: Given) -> list[dict[str, int | str]]:
    size, gpus = sum(case.params.get("processes", [1])), case.params["gpus"]
    return [
        {"rank": rank, "world_size": size, "node_rank": node, "device": f"cuda:{local}" if gpus >= here else "cpu"}
        for rank, node, local, here in played(case)
    ]


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """The places must be whole numbers: `compare` takes a float of the same value for equal."""
    for rank, place in enumerate(got):
        for key in ("rank", "world_size", "node_rank"):
            if type(place[key]) is not int:
                text = f"the result[{key!r}] should be a whole number; it is {place[key]!r}"
                return Finding("DTL-VALUE-TYPE", text, rank, None, "int(...) makes a whole number of a text.")
    return None


def why(case: Case, given: Given, record: Record) -> str:
    return "" if "processes" in case.params else ALONE


def task_text(case: Case, given: Given, rank: int) -> str:
    env, gpus = given[rank]["env"], given[rank]["gpus"]
    names = [f"{name}={env[name]}" for name in NAMES if name in env]
    return f"the environment {', '.join(names) or 'without any of the names'}, and gpus = {gpus}"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"env": dict(zip(NAMES, ("9", "3", "1", "12", "6"), strict=True)), "gpus": 8}],
    verify=verify,
    why=why,
    task_text=task_text,
)
