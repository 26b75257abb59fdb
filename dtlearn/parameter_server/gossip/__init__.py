"""Training without a server: each rank averages its parameters with those of a few neighbours.

`mixing`, who averages with whom and with which weights, is data for any process; `averaging` runs on the ranks.
"""
