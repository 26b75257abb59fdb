"""`dtlearn bench`: what the package costs, beside what else people use, measured in one run.

`benches` has the command and how a bench reports; each other module is one bench, and `other_launchers` are the rivals
of `launch`.
"""
