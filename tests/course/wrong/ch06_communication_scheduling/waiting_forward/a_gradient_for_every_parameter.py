# expect: DTL-RAISED
# says: a frozen parameter has no gradient

import torch


def waiting_forward(layers, works, lr):
    def step(i):
        if i not in works:
            return
        works.pop(i).wait()
        with torch.no_grad():
            for p in layers[i].parameters():
                p -= lr * p.grad
                p.grad = None

    for i, layer in enumerate(layers):
        layer.register_forward_pre_hook(lambda *_, i=i: step(i))

    def last_steps():
        for i in list(works):
            step(i)

    return last_steps
