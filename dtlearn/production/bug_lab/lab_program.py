"""The ten programs of the bug-hunt lab, as data: what each does, what was reported of it, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SYMPTOMS = ("hung", "wrong", "slow")


@dataclass(frozen=True)
class LabProgram:
    """A program with one fault.

    Attributes:
        name: of its file in `programs/`.
        world_size: the number of ranks that it is run with.
        symptom: "hung"; "wrong": it ends, with wrong values and no error; "slow": it ends, and its values are right.
        report: what somebody saw.
        link: the fix or the report of a fault of this kind in a public project. It gives the fault away.
        year: of that.
    """

    name: str
    world_size: int
    symptom: str
    report: str
    link: str
    year: int

    @property
    def file_name(self) -> str:
        """The program's file name, as stacks and records show it."""
        return f"{self.name}.py"

    @property
    def text(self) -> str:
        """The program. Its `main` is what each rank runs."""
        return (Path(__file__).with_name("programs") / self.file_name).read_text("utf-8")

    def listing(self) -> str:
        """The program with the numbers of its lines."""
        return "\n".join(f"{number:3d}  {line}".rstrip() for number, line in enumerate(self.text.splitlines(), 1))


_ALL = (
    LabProgram(
        "sharded_save", 3, "hung",
        "It hangs when it saves for the first time.",
        "https://github.com/huggingface/transformers/pull/10596", 2021,
    ),
    LabProgram(
        "detector_logs", 3, "hung",
        "It trains for hours, and then hangs at some batch. This is such a batch.",
        "https://github.com/open-mmlab/mmdetection/pull/6501", 2021,
    ),
    LabProgram(
        "codebook", 2, "wrong",
        "The codebooks of the two ranks drift apart. One process with all vectors has [[6, 7], [10, 11]].",
        "https://github.com/lucidrains/vector-quantize-pytorch/issues/101", 2024,
    ),
    LabProgram(
        "cache_groups", 4, "hung",
        "With one node it runs. With two it hangs or fails at the start, and once a node had the number of the other.",
        "https://github.com/sgl-project/sglang/pull/15805", 2025,
    ),
    LabProgram(
        "loss_log", 2, "slow",
        "A step spends most of its time in communication. The log is right.",
        "https://github.com/modelscope/ms-swift/pull/9966", 2026,
    ),
    LabProgram(
        "checkpoint_thread", 2, "wrong",
        "A job that is resumed from this file has another loss. After step 2 the weights were 4 and 104.",
        "https://github.com/pytorch/pytorch/pull/145408", 2025,
    ),
    LabProgram(
        "pipeline_pairs", 4, "hung",
        "One pipeline of two stages runs. With a second one beside it, on ranks 2 and 3, it hangs.",
        "https://github.com/PaddlePaddle/Paddle/pull/44276", 2022,
    ),
    LabProgram(
        "collected_scores", 3, "wrong",
        "Now and then a bad checkpoint is chosen. Ranks 1 and 2 have the scores 10 and 20, so the mean is 15.",
        "https://github.com/deepspeedai/DeepSpeed/pull/8539", 2026,
    ),
    LabProgram(
        "loss_metric", 4, "slow",
        "The more samples a step has, the longer the metric takes. What rank 0 shows is right.",
        "https://github.com/allenai/OLMo/pull/279", 2023,
    ),
    LabProgram(
        "resumed_dropout", 3, "wrong",
        "A job that was stopped and resumed ends a little worse than one that ran through.",
        "https://github.com/NVIDIA/Megatron-LM/pull/6858", 2026,
    ),
)  # fmt: skip
PROGRAMS: dict[str, LabProgram] = {program.name: program for program in _ALL}
