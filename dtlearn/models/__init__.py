"""Layer 2: small models, real small data, and the single-process reference that every strategy is compared with.

The training script of chapter 1 is `dtlearn.models.train_digits`; it is a program, so it is not imported here.
"""

from dtlearn.models.corpus import Corpus, load_corpus
from dtlearn.models.digits import Digits, load_digits
from dtlearn.models.gpt import GPT, GPTConfig, next_token_loss
from dtlearn.models.mlp import MLP
from dtlearn.models.reference import (
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
