"""Ranks where they stand: on a ring, in nodes, in a tree, in racks; and what each of them sends."""
