"""Bytes by formula, before a run: `training_state`, what each parameter costs; `activations`, what autograd keeps of a
forward pass; `block_variants`, what newer blocks change in it; `kept_tensors`, what autograd really keeps, to compare
with; `published`, models and GPUs as data; `fits`, all of it together for one GPU."""
