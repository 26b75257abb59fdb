# expect: DTL-DIFFICULTY
# says: on every rank the numbers are expected that rank 0's model had before the call
import torch


def start_equal(model):
    torch.manual_seed(0)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
