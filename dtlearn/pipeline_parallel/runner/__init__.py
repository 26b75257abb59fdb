"""One runner for all schedules: it plays the actions of this rank, and sends and receives what they make and need.

`runner` is what one builds, and `play` its core, which is `page_pipeline` for any schedule. `communication` adds to a
schedule who sends what to whom, and when; `microbatches` cuts a batch; `losses`, what a loss function returns, and how
much a micro-batch counts. What `play` moves: `stage`, the forward and backward passes of one stage, `recomputation`, a
stage that runs its forward pass again, `split_backward`, the backward pass in two parts, and `transfers`, the tensors
that travel. Before and after it: `preconditions`, and `gradients`, what is summed over ranks. `virtual_time` says how
long all that takes on a link.
"""
