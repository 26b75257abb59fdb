"""Small updates for weights of 16 bits: with float32 masters, or in two ways around them.

For any process; nothing here communicates. In this order: `rounded_update`, the naive way, whose weights stall;
`master_weights`; `stochastic_update` and `compensated_update`. All have one interface, and take any optimizer of torch.
"""
