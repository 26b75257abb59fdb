"""The emulated interconnect: what ranks really send takes as long as it would on a given link.

Read `link.py` (what users write, and the rules) and `cost.py` (the formulae): they are data, in any process. On a rank,
`delay.py` holds back its calls, by a clock that all ranks share (`shared_clock.py`), until an instant (`timer.py`).
"""
