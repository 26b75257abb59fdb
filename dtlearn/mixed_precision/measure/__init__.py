"""Effects of low precision on a real model, as data for figures: pure functions, in one process, a few seconds each.

`gradients`: how large the gradients of a GPT are, and what a format makes of them. `emulated_linear`: layers of 16 bits
at the speed of float32. `loss_curves`: one GPT, trained in one format after the other. `small_updates`: a weight that
many small updates do not move.
"""
