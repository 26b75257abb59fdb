"""The job's arithmetic: shares, the update, and a state that comes back."""

import pytest
import torch

from dtlearn.production.faults.work import apply_gradient, gradient, new_state, resume, save, share


@pytest.mark.parametrize(("size", "batch"), [(1, 24), (2, 24), (3, 24), (5, 20)])
def test_the_ranks_share_the_global_batch_and_their_parts_add_up(size, batch):
    model = new_state().model
    parts = [gradient(model, 3, rank, share(24, size)) for rank in range(size)]
    torch.testing.assert_close(sum(parts), gradient(model, 3, 0, share(batch, 1)), rtol=1e-12, atol=1e-14)
    assert share(24, size).lr == pytest.approx(0.05 * batch / 24)


def test_the_update_is_that_of_torch_optim_sgd():
    state, reference = new_state(), new_state().model
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.05, momentum=0.9)
    for step in range(3):
        flat = gradient(state.model, step, 0, share(24, 1))
        apply_gradient(state, flat)
        parts = gradient(reference, step, 0, share(24, 1))[:-1].split([p.numel() for p in reference.parameters()])
        for parameter, part in zip(reference.parameters(), parts, strict=True):
            parameter.grad = part.view_as(parameter)
        optimizer.step()
    for one, other in zip(state.model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=0)


def test_a_job_goes_on_from_its_newest_checkpoint_with_the_same_bits(tmp_path):
    assert resume(tmp_path)[0] == 0
    state = new_state()
    for step in range(4):
        apply_gradient(state, gradient(state.model, step, 0, share(24, 1)))
        if step in (1, 2):
            save(tmp_path, step + 1, state)
    step, again = resume(tmp_path)
    assert step == 3
    apply_gradient(again, gradient(again.model, 3, 0, share(24, 1)))
    for one, other in zip(
        [*state.model.parameters(), *state.momentum], [*again.model.parameters(), *again.momentum], strict=True
    ):
        assert torch.equal(one, other)
