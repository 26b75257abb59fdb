# expect: DTL-RULE-NAME
# says: made a tensor of type bfloat16

import torch


def round_to_bf16(x):
    return x.to(getattr(torch, "bf" + "loat16")).to(x.dtype)
