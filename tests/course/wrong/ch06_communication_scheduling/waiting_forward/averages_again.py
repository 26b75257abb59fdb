# expect: DTL-RULE-MESSAGES
# says: 0

import torch
import torch.distributed as dist


def waiting_forward(layers, works, lr):
    def step(i):
        if i in works:
            works.pop(i).wait()
            with torch.no_grad():
                for p in layers[i].parameters():
                    if p.grad is not None:
                        dist.all_reduce(p.grad)
                        p -= lr * p.grad / dist.get_world_size()
                        p.grad = None

    for i, layer in enumerate(layers):
        layer.register_forward_pre_hook(lambda *_, i=i: step(i))

    def last_steps():
        for i in range(len(layers)):
            step(i)

    return last_steps
