"""Gradients averaged in 16 bits.

On the ranks: `average`, divided before or after the sum; `fp32_sum`, sent in 16 bits and added in 32. For any process:
`rounding_error`, what the order of the additions costs, on 2 ranks and on 1,024; `per_rank_gradients`, real ones.
"""
