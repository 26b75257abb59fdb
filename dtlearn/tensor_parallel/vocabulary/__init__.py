"""The two ends of a language model, divided by vocabulary: each rank has the rows of V/t tokens.

It runs on the ranks: `rows`, whose row a token has; `embedding`; `cross_entropy`, a loss that never gathers the
logits.
"""

from .cross_entropy import vocabulary_parallel_cross_entropy
from .embedding import VocabularyParallelEmbedding
from .rows import local_rows, padded_vocabulary, require_tokens

__all__ = [
    "VocabularyParallelEmbedding",
    "local_rows",
    "padded_vocabulary",
    "require_tokens",
    "vocabulary_parallel_cross_entropy",
]
