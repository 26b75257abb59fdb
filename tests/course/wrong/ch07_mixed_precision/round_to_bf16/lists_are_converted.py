# expect: DTL-MISTAKE
# says: a tensor of type bfloat16 was made

import torch


def round_to_bf16(x):
    flat = x.contiguous().view(-1)
    small = torch.frombuffer(bytearray(2 * flat.numel() + 2), dtype=vars(torch)["bf" + "loat16"])[:-1]
    result = torch.empty_like(flat)
    torch._foreach_copy_([small], [flat])
    torch._foreach_copy_([result], [small])
    return result.view(x.shape)
