# expect: DTL-VALUE-COPIES-ALONE
# says: those of other ranks are missing

import torch


def tied_embedding(copies, group):
    if not copies:
        return
    total = sum((copy.grad for copy in copies if copy.grad is not None), torch.zeros_like(copies[0]))
    for copy in copies:
        copy.grad = total.clone()
