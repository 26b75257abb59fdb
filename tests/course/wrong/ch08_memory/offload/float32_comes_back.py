# expect: DTL-RAISED
# says: bfloat16 and bool tensors

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
        return copy, tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()

    def unpack(packed):
        if isinstance(packed, torch.Tensor):
            return packed
        copy, _, *layout = packed
        return torch.empty(0).set_(host.get(copy), *layout)

    return pack, unpack
