"""Every plan of the package, for tests that hold for all of them."""

from functools import partial

from dtlearn.collectives import halving_doubling, hierarchical, naive, ring, tree

ROOTED = {
    f"{op} {module.__name__.rpartition('.')[2]}": getattr(module, op)
    for module in (naive, tree)
    for op in ("broadcast", "reduce", "scatter", "gather")
}
UNROOTED = {
    f"{op} {module.__name__.rpartition('.')[2]}": getattr(module, op)
    for module in (naive, ring)
    for op in ("all_gather", "reduce_scatter", "all_to_all")
} | {f"all_reduce {m.__name__.rpartition('.')[2]}": m.all_reduce for m in (naive, ring, tree, halving_doubling)}
UNROOTED["all_reduce double_tree"] = partial(tree.double_all_reduce, pieces=3)


def all_plans(num_ranks: int):
    """(name, plan) for that many ranks: every root, every size of node."""
    for name, make in ROOTED.items():
        for root in range(num_ranks):
            yield f"{name} root {root}", make(num_ranks, root)
    for name, make in UNROOTED.items():
        yield name, make(num_ranks)
    for per_node in range(1, num_ranks + 1):
        if num_ranks % per_node == 0:
            yield f"all_reduce hierarchical {per_node}", hierarchical.all_reduce(num_ranks, per_node)
