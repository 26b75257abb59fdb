# expect: DTL-RULE-NAME
# says: save_on_cpu

from torch.autograd.graph import save_on_cpu


def offload(host, parameters, min_bytes):
    hooks = save_on_cpu()
    return hooks.pack_hook, hooks.unpack_hook
