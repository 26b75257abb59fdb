# expect: DTL-DIFFICULTY
# says: the copy of another storage is used

import weakref

import torch


def offload(host, parameters, min_bytes):
    stay = {p.untyped_storage().data_ptr() for p in parameters}
    copies = weakref.WeakValueDictionary()

    def pack(tensor):
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address in stay or storage.nbytes() < min_bytes:
            return tensor.detach()
        copy = copies.get(address)
        if copy is None:
            copy = copies[address] = host.put(storage)
        return copy, tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()

    def unpack(packed):
        if isinstance(packed, torch.Tensor):
            return packed
        copy, dtype, *layout = packed
        return torch.empty(0, dtype=dtype).set_(host.get(copy), *layout)

    return pack, unpack
