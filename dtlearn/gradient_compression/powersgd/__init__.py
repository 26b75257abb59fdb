"""PowerSGD, as a hook of its own: its payloads can be added up, so it needs no all-gather.

`state`, the algorithm and what a rank keeps; `exchange`, one bucket's two all-reduces; `hook`, their order.
"""
