"""Which links of a model belong to which stage, as data that any process can make; nothing here communicates.

`boundaries`: how a partition is written, and what its stages cost; `naive`: equal numbers of links, and a greedy one;
`optimum`: the best one, by dynamic programming; `costs`: what a link costs, in parameters, FLOPs, bytes or seconds;
`stage_times`: what the stages then take, for the simulator.
"""
