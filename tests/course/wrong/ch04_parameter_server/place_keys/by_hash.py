# expect: DTL-VALUE
# says: should be

import zlib


def place_keys(sizes, num_servers):
    if len(sizes) < num_servers:
        raise ValueError(f"{len(sizes)} keys, {num_servers} servers")
    return {key: zlib.crc32(key.encode()) % num_servers for key in sizes}
