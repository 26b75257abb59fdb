"""The two ends of a language model, divided by vocabulary: each rank has the rows of V/t tokens.

It runs on the ranks: `places`, whose row a token has; `embedding`; `cross_entropy`, a loss that never gathers the
logits; `naive`, a loss that does.
"""

from .cross_entropy import vocabulary_parallel_cross_entropy
from .embedding import VocabularyParallelEmbedding
from .naive import gathered_cross_entropy
from .places import local_rows, padded_vocabulary, require_tokens

__all__ = [
    "VocabularyParallelEmbedding",
    "gathered_cross_entropy",
    "local_rows",
    "padded_vocabulary",
    "require_tokens",
    "vocabulary_parallel_cross_entropy",
]
