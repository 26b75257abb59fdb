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
    "DTL-RULE-GRADIENTS-KEPT": "full gradients that are still there after their reduction",
    "DTL-RULE-LATE-BINDING": "hooks that all read the last value of a loop's variable",
    "DTL-RULE-OPTIMIZER": "an optimizer that was built not at all, or several times",
    "DTL-RULE-READS": "elements that are read needlessly, several times, or past the file",
    "DTL-RULE-WHOLE-KEPT": "something of full length that is kept between steps",
    "DTL-RULE-WHOLE-STATE": "an optimizer's state that is not divided over the ranks",
    "DTL-VALUE-ACCUMULATION": "passes of the network counted once a step or for each micro-batch, the other way round",
    "DTL-VALUE-ACTIVATIONS": "activations left out",
    "DTL-VALUE-ADDED-UP": "gradients added up over steps",
    "DTL-VALUE-BYTES-EACH": "another number of bytes for each parameter",
    "DTL-VALUE-CLIPPED-TWICE": "a gradient that is scaled twice",
    "DTL-VALUE-DEALT-OUT": "elements dealt out in turn where contiguous shards are meant",
    "DTL-VALUE-ELEMENTS": "elements or bits in place of bytes",
    "DTL-VALUE-ELEMENTS-LOST": "elements that are in no shard",
    "DTL-VALUE-FIRST-GROUP": "the first parameter group taken for all",
    "DTL-VALUE-FIRST-UNIT": "the first unit taken for all",
    "DTL-VALUE-FITS-ANYWAY": "a stage although none fits",
    "DTL-VALUE-FLAT-DTYPE": "a flat buffer of another dtype than its tensors",
    "DTL-VALUE-GIB": "2**30 bytes where 10**9 are meant",
    "DTL-VALUE-GROUP-IGNORED": "all ranks where those of a group are meant",
    "DTL-VALUE-LARGEST-STAGE": "another stage than the smallest that fits",
    "DTL-VALUE-MEMORY-ORDER": "elements in the order of memory where that of rows is meant",
    "DTL-VALUE-MISPAIRED": "gradients of different parameters added up",
    "DTL-VALUE-MIXED-DTYPES": "several dtypes in one flat buffer",
    "DTL-VALUE-NO-EPSILON": "max_norm / norm where torch adds 1e-6 to the norm",
    "DTL-VALUE-NO-PADDING": "padding left out of a count",
    "DTL-VALUE-NORM-PADDING": "padding counted in a norm",
    "DTL-VALUE-NOT-COPIED": "weights that were updated and not copied back",
    "DTL-VALUE-NOT-FINITE": "a finite norm of gradients that are not finite",
    "DTL-VALUE-NOT-GATHERED": "shards that did not reach the other ranks",
    "DTL-VALUE-NOT-MEAN": "a sum over the ranks, divided by another number than theirs",
    "DTL-VALUE-NOT-NEIGHBOURS": "units gathered at once that do not follow one another",
    "DTL-VALUE-OLD-PADDING": "new shards cut from a length with the old padding",
    "DTL-VALUE-OLD-VALUES": "values from before the shards were changed",
    "DTL-VALUE-OPTIONS-LOST": "options that did not reach the optimizer",
    "DTL-VALUE-OTHER-ELEMENTS": "other elements in a shard than its own",
    "DTL-VALUE-OWN-FILE": "the file of the same rank where elements of several are wanted",
    "DTL-VALUE-OWN-GRADIENT": "a shard updated by one rank's own gradient",
    "DTL-VALUE-PADDED-AT-ONCE": "one padding for all buffers where each has its own",
    "DTL-VALUE-PADDING-KEPT": "padding that came back as part of a tensor",
    "DTL-VALUE-PARAMETERS": "parameters changed where gradients were meant",
    "DTL-VALUE-RESTORED-ELEMENTS": "tensors made of other elements of a flat buffer than their own",
    "DTL-VALUE-SAME-KEY": "one vector read for another",
    "DTL-VALUE-SENT-COUNTED": "bytes that are sent counted as memory",
    "DTL-VALUE-SHARD-LENGTH": "shards that are longer or shorter than needed",
    "DTL-VALUE-SHARD-PADDING": "padding in another place, of another length or with other values",
    "DTL-VALUE-STAGE": "something divided in another stage than its own",
    "DTL-VALUE-STATE-LOST": "an optimizer's state that is not kept from step to step",
    "DTL-VALUE-TEMPORARY": "whole units that are there for a while, counted otherwise",
    "DTL-VALUE-TIED-TWICE": "tied parameters counted twice",
    "DTL-VALUE-TIGHT": "a choice of exactly the budget taken for too large",
    "DTL-VALUE-TRAFFIC": "another number of bytes sent in a step",
    "DTL-VALUE-UNEVEN-SHARDS": "shards of different lengths",
}
