# expect: DTL-RULE-HELD
# says: have to be (without offload

import torch


def offload(host, parameters, min_bytes):
    stay = {p.untyped_storage() for p in parameters}
    copies = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage in stay or storage.nbytes() < min_bytes:
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
