# expect: DTL-DIFFICULTY
# says: no gradient of an input, and no forward pass
# says: what W computes

import torch


class Stage:
    def __init__(self, layers):
        self.layers = layers
        self.outputs, self.given = {}, {}

    def forward(self, k, x):
        leaf = y = x.detach().requires_grad_()
        for place, layer in enumerate(self.layers):
            y = layer(y.relu() if place else y)
        self.outputs[k] = leaf, y
        return y.detach()

    def parameters(self):
        return [p for layer in self.layers for p in layer.parameters()]

    def input_gradient(self, k, dy):
        leaf, y = self.outputs[k]
        self.given[k] = dy
        return torch.autograd.grad(y, leaf, dy, retain_graph=True)[0]

    def weight_gradients(self, k):
        _, y = self.outputs.pop(k)
        gradients = torch.autograd.grad(y, self.parameters(), self.given.pop(k))
        for parameter, gradient in zip(self.parameters(), gradients, strict=True):
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


def split_backward(layers):
    return Stage(layers)
