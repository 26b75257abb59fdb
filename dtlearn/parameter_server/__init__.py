"""Layer 4: parameter servers. Some ranks keep the parameters, the others train.

For any process: `consistency`, who may start a step, as rules of clocks; `progress`, what follows the clocks and keeps
the log of pushes; `placement`, who keeps what; `shard` and `row_table`, the parameters of one server and their
optimizers. On the ranks: `ranks/`.
"""
