"""The parameter server on ranks: `roles`, `messages`, then `server` and `worker`, and `training`, the two protocols.

`checkpoint` brings a server back that was killed; `mortal_ranks` runs ranks of which some are.
"""
