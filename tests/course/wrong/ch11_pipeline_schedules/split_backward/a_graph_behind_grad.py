# expect: DTL-DIFFICULTY
# says: compute under torch.no_grad()
# says: graph behind it


class SplitStage:
    def __init__(self, layers):
        self.layers = list(layers)
        self.x = {}
        self.dy = {}

    def forward(self, k, x):
        kept = []
        for i, layer in enumerate(self.layers):
            if i:
                x = x.relu()
            kept.append(x)
            x = layer(x)
        self.x[k] = kept
        return x

    def input_gradient(self, k, dy):
        xs = self.x[k]
        dys = [None] * len(xs)
        for i in reversed(range(len(xs))):
            dys[i] = dy
            dy = dy @ self.layers[i].weight
            if i:
                dy = dy * (xs[i] > 0)
        self.dy[k] = dys
        return dy

    def weight_gradients(self, k):
        for layer, x, dy in zip(self.layers, self.x.pop(k), self.dy.pop(k), strict=True):
            x = x.reshape(-1, x.shape[-1])
            dy = dy.reshape(-1, dy.shape[-1])
            add(layer.weight, dy.T @ x)
            if layer.bias is not None:
                add(layer.bias, dy.sum(0))


def add(parameter, gradient):
    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


def split_backward(layers):
    return SplitStage(layers)
