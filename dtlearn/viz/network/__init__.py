"""Ranks where they stand: on a ring, in nodes, in a tree, in racks; and what each of them sends."""

from .placed_steps import circle, in_nodes, placed_figure
from .sent_bytes import sent_bytes, sent_words
from .topology_picture import topology_picture, topology_words
from .tree_picture import tree_picture, tree_words

__all__ = [
    "circle",
    "in_nodes",
    "placed_figure",
    "sent_bytes",
    "sent_words",
    "topology_picture",
    "topology_words",
    "tree_picture",
    "tree_words",
]
