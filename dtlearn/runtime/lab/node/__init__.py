"""A machine that has joined a lab; runs there, in the process of `dtlearn node`.

Read `node.py` (joins, serves, ends), then what it serves: `ranks.py` and `launch.py`.
"""
