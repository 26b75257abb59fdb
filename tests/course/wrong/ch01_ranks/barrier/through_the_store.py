# expect: DTL-VALUE-UNTOLD
# says: no rank sends anything
import time

import torch.distributed as dist

C = [0]


def barrier():
    C[0] += 1
    s = dist.distributed_c10d._get_default_store()
    s.add(f"b{C[0]}", 1)
    while s.add(f"b{C[0]}", 0) < dist.get_world_size():
        time.sleep(0.001)
