"""Layer 3: what the strategies share, between the collectives and them; strategies never import each other.

A new strategy finds its tools here. In this order:

- `flat_collectives`, the two collectives of flat tensors under the name that this version of torch has for them;
  `shards`, even shards of a tensor; `along_dim`, collectives along any dim; `differentiable`, those that autograd sees;
  `uneven`, an all-to-all of as many rows as each rank has for each other one, which autograd sees, too;
- `wrapping/`, what a wrapper of any model needs: copies that begin as one, and which backward pass is going on;
- `gradient_buckets`, which gradients are reduced together, as data; `comm_hooks`, what happens to a full bucket;
- `clipping`, gradients clipped by their norm over ranks, in which the caller says what counts on this rank;
- `surroundings`, random numbers and autocast as they were, for a function that is run again;
- `host_memory`, tensors that wait on the host, and bytes that move;
- `resharding`, what to read from which saved piece, for tensors that were saved in other pieces than are wanted.

For any process: `gradient_buckets`, `host_memory` and `resharding`; the others run on the ranks.
"""
