"""Layer 3: what the strategies share, between the collectives and them; strategies never import each other.

`flat_collectives`, the two collectives of flat tensors under the name that this version of torch has for them;
`along_dim`, collectives along any dim of a tensor; `surroundings`, random numbers and autocast as they were, for a
function that is run again.
"""
