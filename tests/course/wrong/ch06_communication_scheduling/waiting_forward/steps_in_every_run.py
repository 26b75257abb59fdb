# expect: DTL-DIFFICULTY
# says: a layer that runs twice in a forward pass makes its step before the first run


def waiting_forward(layers, works, lr):
    means = {}

    def step(i):
        own = [p for p in layers[i].parameters() if p.requires_grad]
        if i in works:
            works.pop(i).wait()
            means[i] = [p.grad for p in own]
            for p in own:
                p.grad = None
        for p, mean in zip(own, means.get(i, ()), strict=False):
            p.data -= lr * mean

    for i, layer in enumerate(layers):
        layer.register_forward_pre_hook(lambda *_, i=i: step(i))
    return lambda: [step(i) for i in range(len(layers)) if i in works]
