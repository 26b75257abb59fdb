"""The causes to choose from, the same for all programs: a short name, and what it means."""

CAUSES: dict[str, str] = {
    "data decide": "whether a rank makes a collective call depends on what its own data hold",
    "rank decides": "a collective call stands in a branch that only some ranks enter",
    "other order": "ranks make the same collective calls in different orders",
    "groups": "the ranks do not all create the same groups, in one order",
    "wrong peer": "a rank's number in its group is taken for its global number, or the other way round",
    "shape or dtype": "ranks hand in tensors of different shapes or dtypes",
    "a copy": "a collective works on a copy, and its result is lost",
    "not waited for": "a tensor is used before its communication has been waited for",
    "changed meanwhile": "a tensor is changed while it is still being saved or sent",
    "one for all": "all ranks take what one rank had, and each needs its own",
    "own for each": "each rank has its own, such as initial weights, and all need the same",
    "not restored": "a part of the job's state is not saved, or not restored",
    "wrong mean": "a mean is divided by the wrong number, or twice",
    "too often": "ranks communicate more often than the result is needed",
    "too much": "ranks send more than the result needs",
    "straggler": "one rank has more work than the others, and they wait",
}
