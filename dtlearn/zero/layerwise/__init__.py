"""Optimizer parallelism where an optimizer looks at whole layers.

"Optimizer parallelism" is the work of the optimizer's step, and its state, divided over data-parallel ranks: what ZeRO
stage 1 does. Element by element it is easy, and a shard may end anywhere. But LARS and LAMB need the norm of each
layer, and Muon each matrix whole. So either ranks add up what is missing (`lamb`), or each matrix belongs to one rank
(`muon`).
"""
