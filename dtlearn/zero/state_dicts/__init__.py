"""State of a sharded model and its optimizer: saved by each rank, put together, and cut anew for other ranks.

`sharded`, what one rank saves and loads; `reshard`, a state cut anew by `dtlearn.sharing.resharding`; `whole`, states
put together, and given to a model that is not sharded. `plain_optimizer`: the state dict of torch's own
optimizer, from pieces and back, for stage 1's protocol.
"""
