"""Ranks that step alone and meet rarely: their parameters are averaged, not the gradients of every step.

In this order: `mean`, the mean over ranks of tensors and of whole models; `local_steps`, what all of them share; then
`periodic`, local SGD; `post_local`, averaged gradients first and local steps later; `diloco`, an outer optimizer that
takes what the ranks have moved as its gradient; `streaming`, the same in fragments, beside the computation.
"""
