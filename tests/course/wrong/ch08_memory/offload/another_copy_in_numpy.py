# expect: DTL-RULE-HELD
# says: backward did not use what the host gave back

import weakref

import torch


def offload(host, parameters, min_bytes):
    stay = {p.untyped_storage() for p in parameters}
    copies = weakref.WeakKeyDictionary()

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage in stay or storage.nbytes() < min_bytes:
            return tensor
        if storage not in copies:
            copies[storage] = host.put(storage)
        array = tensor.detach().float().numpy().copy()
        return copies[storage], tensor.dtype, array, tensor.stride()

    def unpack(packed):
        if isinstance(packed, torch.Tensor):
            return packed
        copy, dtype, array, stride = packed
        host.get(copy)
        made = torch.from_numpy(array).to(dtype)
        return torch.empty_strided(made.shape, stride, dtype=dtype).copy_(made)

    return pack, unpack
