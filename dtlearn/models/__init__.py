"""Layer 1: what is trained, and what every strategy is compared with. Nothing here knows of a strategy.

Models, data and references are for any process; times are taken, and scripts run, on the ranks. In this order: `mlp`
and `gpt`, small models; `digits` and `corpus`, real small data; `reference`, the single-process step; `in_turns`, the
one way to compare times; `default_group`; then, not imported here, `train_digits`, the script of chapter 1, a program.
"""

from .corpus import Corpus, load_corpus
from .digits import Digits, load_digits
from .gpt import GPT, GPTConfig, next_token_loss
from .mlp import MLP
from .reference import (
    Difference,
    ReferenceRun,
    ReferenceStep,
    max_difference,
    num_parameters,
    reference_step,
    snapshot_gradients,
    snapshot_parameters,
    train_reference,
)

__all__ = [
    "GPT",
    "MLP",
    "Corpus",
    "Difference",
    "Digits",
    "GPTConfig",
    "ReferenceRun",
    "ReferenceStep",
    "load_corpus",
    "load_digits",
    "max_difference",
    "next_token_loss",
    "num_parameters",
    "reference_step",
    "snapshot_gradients",
    "snapshot_parameters",
    "train_reference",
]
