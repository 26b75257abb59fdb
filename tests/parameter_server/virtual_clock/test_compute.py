import torch

from dtlearn.models import MLP
from dtlearn.parameter_server.virtual_clock.compute import computing

from .problem import LOSS, batches, compute_of, initial, make_model


def test_it_is_a_backward_pass_at_the_parameters_that_are_given():
    parts = batches(2, 2)
    elsewhere = {name: tensor + 1 for name, tensor in initial().items()}
    model = make_model()
    model.load_state_dict(elsewhere)
    loss = LOSS(model(parts[1][1][0]), parts[1][1][1])
    loss.backward()
    compute = compute_of(parts)
    compute(0, 0, initial())  # leaves nothing behind
    computed = compute(1, 1, elsewhere)
    assert computed.loss == loss.item() and computed.weight == 3
    assert all(torch.equal(computed.gradients[name], p.grad) for name, p in model.named_parameters())


def test_a_parameter_that_was_not_used_has_zeros():
    class HalfUsed(MLP):
        def forward(self, x):
            return self.layers[0](x)

    compute = computing(HalfUsed((5, 8, 3)), lambda outputs, targets: outputs.mean(), batches(1, 1))
    gradients = compute(0, 0, initial()).gradients
    assert not gradients["layers.2.weight"].any() and gradients["layers.0.weight"].any()
