# expect: DTL-DIFFICULTY
# says: a layer waits for its own gradient and for no other

import torch


def waiting_forward(layers, works, lr):
    """Waits for all in a hook of the first layer that is called before the whole forward pass."""

    def step_all(*_):
        for i in sorted(works, reverse=True):
            works.pop(i).wait()
            with torch.no_grad():
                for p in layers[i].parameters():
                    if p.grad is not None:
                        p -= lr * p.grad
                        p.grad = None

    layers[0].register_forward_pre_hook(step_all)
    return step_all
