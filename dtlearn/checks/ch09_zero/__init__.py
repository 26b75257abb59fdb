"""Checks of chapter 9."""

from __future__ import annotations

from dtlearn.grading import Case

from .. import MAY_HELP as MAY_HELP
from ..own_work import forbids, forbids_torchs

# Rules on the text of every answer.
READS = [
    forbids(
        "dtlearn.zero",
        "dtlearn.sharing",
        "dtlearn.data_parallel",
        "dtlearn.mixed_precision",
    ),
    forbids_torchs(  # its own sharded training
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
]
# Codes of mistakes that only these exercises know; see `dtlearn.checks.meanings`.
MEANINGS = {
    "DTL-RULE-GATHERED-KEPT": "full weights or gradients that are kept after their use",
    "DTL-RULE-GATHERS": "units that are gathered twice, not at all or in another order",
    "DTL-RULE-GRADIENTS-KEPT": "full gradients that are still there after their reduction",
    "DTL-RULE-LATE-BINDING": "hooks that all read the last value of a loop's variable",
    "DTL-RULE-NO-PREFETCH": "a gather that is launched when it is needed",
    "DTL-RULE-NOT-REGATHERED": "weights that were kept where they should be gathered again",
    "DTL-RULE-NOT-WAITED": "an asynchronous call that is never waited for",
    "DTL-RULE-OPTIMIZER": "an optimizer that was built not at all, or several times",
    "DTL-RULE-READS": "elements that are read needlessly, several times, or past the file",
    "DTL-RULE-TOO-FAR": "more units gathered ahead than allowed",
    "DTL-RULE-WAIT-EARLY": "a wait before there is nothing else to do",
    "DTL-RULE-WEIGHT-HELD": "a gathered weight that is held after its use",
    "DTL-RULE-WHOLE-KEPT": "something of full length that is kept between steps",
    "DTL-RULE-WHOLE-STATE": "an optimizer's state that is not divided over the ranks",
    "DTL-VALUE-ACCUMULATION": "passes of the network counted once a step or for each micro-batch, the other way round",
    "DTL-VALUE-ACTIVATIONS": "activations left out",
    "DTL-VALUE-ADDED-UP": "gradients added up over steps",
    "DTL-VALUE-AS-FOUND": "a program with bugs, handed in as it was found",
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
    "DTL-VALUE-GRADIENT-MADE": "a gradient where there was none",
    "DTL-VALUE-GROUP-IGNORED": "all ranks where those of a group are meant",
    "DTL-VALUE-LARGEST-STAGE": "another stage than the smallest that fits",
    "DTL-VALUE-MEMORY-ORDER": "elements in the order of memory where that of rows is meant",
    "DTL-VALUE-MISPAIRED": "gradients of different parameters added up",
    "DTL-VALUE-MIXED-DTYPES": "several dtypes in one flat buffer",
    "DTL-VALUE-NO-EPSILON": "max_norm / norm where torch adds 1e-6 to the norm",
    "DTL-VALUE-NO-GRADIENTS": "parameters without gradients",
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
    "DTL-VALUE-OTHER-WEIGHT": "a unit that computes with another weight than its own",
    "DTL-VALUE-OWN-FILE": "the file of the same rank where elements of several are wanted",
    "DTL-VALUE-OWN-GRADIENT": "a shard updated by one rank's own gradient",
    "DTL-VALUE-PADDED-AT-ONCE": "one padding for all buffers where each has its own",
    "DTL-VALUE-PADDING-KEPT": "padding that came back as part of a tensor",
    "DTL-VALUE-PARAMETERS": "parameters changed where gradients were meant",
    "DTL-VALUE-RESTORED-ELEMENTS": "tensors made of other elements of a flat buffer than their own",
    "DTL-VALUE-RESTORED-ONCE": "a function that works only the first time",
    "DTL-VALUE-SAME-KEY": "one vector read for another",
    "DTL-VALUE-SENT-COUNTED": "bytes that are sent counted as memory",
    "DTL-VALUE-SHARD-LENGTH": "shards that are longer or shorter than needed",
    "DTL-VALUE-SHARD-PADDING": "padding in another place, of another length or with other values",
    "DTL-VALUE-SHARDS-CHANGED": "shards that were returned and changed later",
    "DTL-VALUE-STAGE": "something divided in another stage than its own",
    "DTL-VALUE-STATE-LOST": "an optimizer's state that is not kept from step to step",
    "DTL-VALUE-STATE-OF-ONE": "the optimizer's state of one rank where that of all is meant",
    "DTL-VALUE-TEMPORARY": "whole units that are there for a while, counted otherwise",
    "DTL-VALUE-TIED-TWICE": "tied parameters counted twice",
    "DTL-VALUE-TIGHT": "a choice of exactly the budget taken for too large",
    "DTL-VALUE-TRAFFIC": "another number of bytes sent in a step",
    "DTL-VALUE-UNEVEN-SHARDS": "shards of different lengths",
}


def groups_of(case: Case) -> list[list[int]]:
    """The ranks of each group: all are one, or, with "pairs", every other one, so that no group is in one piece."""
    n = case.world_size
    return [list(range(first, n, 2)) for first in range(2)] if "pairs" in case.params else [list(range(n))]
