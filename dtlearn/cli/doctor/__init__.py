"""`dtlearn doctor`: does this machine, or a lab of several, have what the course needs?

`report` examines this machine with `software`, `machine` and `ranks`; `lab` examines several with `nodes` and `group`.
A `check.Line` is one of either table.
"""
