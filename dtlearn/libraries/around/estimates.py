"""DeepSpeed's memory estimators beside the course's arithmetic: where their numbers differ, and why.

They answer one question, what model states take, and leave out activations. They count a gradient in fp32 beside that
in 16 bits: 2 + 18 / N bytes a parameter for stage 2, 20 in all; for stage 3 18 / N, and 4 bytes for each parameter of
the largest layer, which is gathered. The paper counts 16. And they print GB for 2^30 bytes.
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from dtlearn.memory.arithmetic.training_state import GB, GIB

from ..environment import answer_of, python_with
from ..quiet_deepspeed import quiet_deepspeed
from ..require import require_whole

MODULE = "dtlearn.libraries.around.estimates"
PAPER = {"weight": 2, "gradient": 2, "optimizer": 12}  # bytes a parameter, mixed-precision Adam (1910.02054, section 3)
SECONDS = 300.0


@dataclass(frozen=True)
class Estimate:
    """Model states of a rank on a device, without offload.

    Attributes:
        stage: of ZeRO, 2 or 3.
        paper_bytes: by the paper: 16 bytes a parameter, of which the stage divides some.
        deepspeed_bytes: what the estimator says.
        printed: the number of "GB" that it prints, which are GiB.
    """

    stage: int
    paper_bytes: float
    deepspeed_bytes: float

    @property
    def printed(self) -> float:
        return self.deepspeed_bytes / GIB

    @property
    def gigabytes(self) -> float:
        """DeepSpeed's estimate in GB of 10^9 bytes, as the paper counts."""
        return self.deepspeed_bytes / GB


def paper_bytes(num_parameters: int, ranks: int, stage: int) -> float:
    """Bytes of model states of a rank: what the stage divides is there once among all.

    Raises:
        ValueError: a size that is no whole number of 1 or more, or a stage that ZeRO has not.
    """
    _require_sizes(num_parameters=num_parameters, ranks=ranks)
    if stage not in range(4):
        raise ValueError(f"stage must be 0, 1, 2 or 3, got {stage!r}")
    divided = {0: (), 1: ("optimizer",), 2: ("optimizer", "gradient"), 3: tuple(PAPER)}[stage]
    return sum(num_parameters * size / (ranks if name in divided else 1) for name, size in PAPER.items())


def compare_estimates(num_parameters: int, largest_layer: int, ranks: int) -> list[Estimate]:
    """Both estimates for stages 2 and 3, with all ranks in one node and nothing offloaded.

    Args:
        largest_layer: parameters of the largest layer, which stage 3 gathers.

    Raises:
        ValueError: a size that is no whole number of 1 or more. LibraryMissing: DeepSpeed is not installed.
    """
    _require_sizes(num_parameters=num_parameters, largest_layer=largest_layer, ranks=ranks)
    python = python_with("deepspeed")
    if python != Path(sys.executable):
        return [Estimate(**row) for row in answer_of(python, MODULE, [num_parameters, largest_layer, ranks], SECONDS)]
    quiet_deepspeed()
    stage2 = importlib.import_module("deepspeed.runtime.zero.stage_1_and_2")
    stage3 = importlib.import_module("deepspeed.runtime.zero.stage3")
    _, of_two = stage2.estimate_zero2_model_states_mem_needs(
        total_params=num_parameters, num_gpus_per_node=ranks, num_nodes=1, cpu_offload=False
    )
    _, of_three, _ = stage3.estimate_zero3_model_states_mem_needs(
        total_params=num_parameters,
        largest_layer_params=largest_layer,
        num_gpus_per_node=ranks,
        num_nodes=1,
        cpu_offload=False,
        cpu_offload_params=False,
        zero_init=True,
    )
    found = {2: of_two, 3: of_three}
    return [Estimate(stage, paper_bytes(num_parameters, ranks, stage), float(size)) for stage, size in found.items()]


def _require_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        require_whole(name, size)


def main(asked: str, answered: str) -> None:
    """Answer another Python's question, see `answer_of`."""
    found = compare_estimates(*json.loads(Path(asked).read_text("utf-8")))
    Path(answered).write_text(json.dumps([asdict(estimate) for estimate in found]), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
