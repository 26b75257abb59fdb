# expect: DTL-RULE-STAYED
# says: nothing was put on the host

import weakref

import torch


def offload(host, parameters, min_bytes):
    stay = {p.untyped_storage() for p in parameters}
    copies = weakref.WeakKeyDictionary()

    def pack(tensor):
        storage = tensor.untyped_storage()
        if tensor is not None or storage in stay:
            return tensor
        if storage not in copies:
            copies[storage] = host.put(storage)
        return copies[storage], tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()

    def unpack(packed):
        if isinstance(packed, torch.Tensor):
            return packed
        copy, dtype, *layout = packed
        return torch.empty(0, dtype=dtype).set_(host.get(copy), *layout)

    return pack, unpack
