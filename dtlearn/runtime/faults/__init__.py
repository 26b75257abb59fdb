"""What can be wrong with ranks, as data; runs in any process.

Read `codes.py` (every code, why it happens, what to do), `diagnosis.py` (a named fault: which ranks, which calls),
`failure.py` (how one rank failed, and which failure explains the others) and `stacks.py` (where a rank stands in its
code). `watch/` finds the faults, `errors.py` raises them.
"""
