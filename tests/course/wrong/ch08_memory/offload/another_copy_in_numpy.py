# expect: DTL-DIFFICULTY
# says: backward does not use what the host gives back

import weakref

import torch


def offload(host, parameters, min_bytes):
    stay = {p.untyped_storage() for p in parameters}
    copies = weakref.WeakKeyDictionary()

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage in stay or storage.nbytes() < min_bytes:
            return tensor.detach()
        known = copies.get(storage)
        copy = known() if known else None
        if copy is None:
            copy = host.put(storage)
            copies[storage] = weakref.ref(copy)
        array = tensor.detach().float().numpy().copy()
        return copy, tensor.dtype, array, tensor.stride()

    def unpack(packed):
        if isinstance(packed, torch.Tensor):
            return packed
        copy, dtype, array, stride = packed
        host.get(copy)
        made = torch.from_numpy(array).to(dtype)
        return torch.empty_strided(made.shape, stride, dtype=dtype).copy_(made)

    return pack, unpack
