"""Ways to hold fewer bytes without computing anything twice, and ways in which a loop holds more than it knows.

In this order: `accumulation`, a large batch in small parts; `offload`, activations that wait on the host, which is
`dtlearn.sharing.host_memory`; `optimizer_in_backward`, gradients that are freed as they come; `leaks`, memory that
grows from step to step; `variants`, one step in all these ways and with recomputation, its memory and its time.
"""
