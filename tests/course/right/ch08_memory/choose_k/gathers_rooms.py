import torch
import torch.distributed as dist


def choose_k(num_layers, layer_bytes, input_bytes, free_bytes):
    rooms = [torch.empty((), dtype=torch.float64) for _ in range(dist.get_world_size())]
    dist.all_gather(rooms, torch.tensor(free_bytes, dtype=torch.float64))
    room = min(int(x) for x in rooms)
    best = None
    for k in range(num_layers, 0, -1):
        held, left, worst = 0, num_layers, 0
        while left > 0:
            here = min(k, left)
            worst = max(worst, held + here * layer_bytes)
            held, left = held + input_bytes, left - here
        again = num_layers - here
        if worst <= room and (best is None or (again, worst) < best[:2]):
            best = (again, worst, k)
    return best and best[2]
