"""The bytes and seconds that tensor parallelism takes, before a run: formulas, equal to what is counted in a run.

Pure functions for any process, in the letters of the Megatron papers: b batch, s sequence length, h hidden size,
a heads, V vocabulary, t tensor-parallel ranks. `sizes`, of a block; `traffic`, what each rank sends; `activations`,
what each rank keeps; `cliff`, how long a layer takes as t grows beyond a node.
"""
