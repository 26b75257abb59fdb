"""One runner for all schedules: it does the actions of this rank, and sends and receives what they make and need.

`communication` is for any process: it adds to a schedule who sends what to whom, and when. On the ranks: `stage`, the
forward and backward passes of one stage; `split_backward`, the backward pass in two parts, and `naive_split` beside it;
`losses`, what a loss function returns; `transfers`, the tensors that travel; `gradients`, what is summed over ranks
when the schedule is done; and `runner`.
"""
