"""Checks of chapter 9."""

from ..own_work import find_forbidden, forbids

_WHY_OWN = "it is the answer itself. Write your own here"
# torch's own sharded training, which no answer may use.
_TORCHS = dict.fromkeys(
    (
        "torch.distributed.optim.ZeroRedundancyOptimizer",
        "torch.distributed.optim.zero_redundancy_optimizer",
        "torch.distributed.fsdp",
        "torch.distributed._composable",
        "torch.distributed._tools",
        "torch.distributed.tensor",
        "torch.distributed._tensor",
        "torch.distributed.checkpoint",
        "torch.nn.parallel",
    ),
    _WHY_OWN,
)

# Rules on the text of every answer.
READS = [
    forbids("dtlearn.zero", "dtlearn.models.wrapping", "dtlearn.data_parallel", "dtlearn.mixed_precision"),
    lambda source: find_forbidden(source, _TORCHS),
]
# Codes of mistakes that only these exercises know; see `dtlearn.checks.meanings`.
MEANINGS = {
    "DTL-VALUE-DEALT-OUT": "elements dealt out in turn where contiguous shards are meant",
    "DTL-VALUE-ELEMENTS-LOST": "elements that are in no shard",
    "DTL-VALUE-FLAT-DTYPE": "a flat buffer of another dtype than its tensors",
    "DTL-VALUE-MEMORY-ORDER": "elements in the order of memory where that of rows is meant",
    "DTL-VALUE-MIXED-DTYPES": "several dtypes in one flat buffer",
    "DTL-VALUE-OLD-VALUES": "values from before the shards were changed",
    "DTL-VALUE-OTHER-ELEMENTS": "other elements in a shard than its own",
    "DTL-VALUE-PADDING-KEPT": "padding that came back as part of a tensor",
    "DTL-VALUE-RESTORED-ELEMENTS": "tensors made of other elements of a flat buffer than their own",
    "DTL-VALUE-SHARD-LENGTH": "shards that are longer or shorter than needed",
    "DTL-VALUE-SHARD-PADDING": "padding in another place, of another length or with other values",
    "DTL-VALUE-UNEVEN-SHARDS": "shards of different lengths",
}
