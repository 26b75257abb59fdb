"""Layers of which each rank has a part, on the ranks, and naive ones beside them.

In this order: `parameters`, which dim of a parameter is divided; `linear`, `page_linear` with all its options;
`overlap`, the gradient sent while the next one is computed; `gathered_products`, tokens that are gathered a second
time; `feed_forward` and `swiglu`, a column and a row layer together; `naive`, what others cost.
"""
