# expect: DTL-MISTAKE
# says: I changes .grad of the weights


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
        leaf, y = self.outputs.pop(k)
        y.backward(dy)
        return leaf.grad

    def weight_gradients(self, k):
        pass


def split_backward(layers):
    return Stage(layers)
