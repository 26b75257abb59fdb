import pytest
import torch

from dtlearn.production.checkpoints.elastic import merge_residuals, ranks_to_merge


@pytest.mark.parametrize(("saved", "now"), [(4, 2), (4, 3), (2, 4), (4, 1), (3, 3)])
def test_what_is_owed_stays_owed(saved, now):
    """The mean of what is sent, over all ranks, must in the end be the mean of the gradients."""
    kept = torch.randn(saved, 50, dtype=torch.float64)
    rows = [ranks_to_merge(saved, now, rank) for rank in range(now)]
    assert sorted(row for own in rows for row in own) == list(range(saved))
    new = [merge_residuals([kept[row] for row in own], saved, now) for own in rows if own]
    assert torch.allclose(sum(new) / now, kept.mean(dim=0), atol=1e-15)
    if saved == now:
        assert all(torch.equal(a, b) for a, b in zip(new, kept, strict=True))
