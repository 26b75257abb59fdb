# expect: DTL-RAISED
# says: there may be any number of dims before the features
"""x is taken for a matrix."""

import torch


class Stage:
    def __init__(self, layers):
        self.layers, self.kept = layers, {}

    @torch.no_grad()
    def forward(self, k, x):
        kept = self.kept[k] = []
        for layer in self.layers:
            kept.append(x.relu() if kept else x)
            x = layer(kept[-1])
        return x

    @torch.no_grad()
    def input_gradient(self, k, dy):
        dys = []
        for layer, x in zip(reversed(self.layers), reversed(self.kept[k]), strict=True):
            dys.append(dy)
            dy = dy @ layer.weight
            if len(dys) < len(self.layers):
                dy[x <= 0] = 0
        self.kept[k] = [*zip(self.layers, self.kept[k], reversed(dys), strict=True)]
        return dy

    @torch.no_grad()
    def weight_gradients(self, k):
        for layer, x, dy in self.kept.pop(k):
            pairs = [(layer.weight, dy.t() @ x)]
            if layer.bias is not None:
                pairs.append((layer.bias, dy.sum(0)))
            for p, gradient in pairs:
                p.grad = gradient if p.grad is None else p.grad + gradient


def split_backward(layers):
    return Stage(layers)
