"""Metrics that add up: against scikit-learn, and in parts."""

import math

import pytest
import torch
import torch.nn.functional as F

from dtlearn.data_parallel import Metrics


def some(n, num_classes=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, num_classes, generator=g), torch.randint(num_classes, (n,), generator=g)


def f1_score(targets, guesses, average):
    from sklearn.metrics import f1_score as by_sklearn  # 2 s; every worker imports this file, and one runs its tests

    return by_sklearn(targets, guesses, average=average)


def of(outputs, targets):
    return Metrics.of(outputs, targets, F.cross_entropy)


def test_of_one_batch():
    outputs, targets = some(50)
    found = of(outputs, targets)
    guesses = outputs.argmax(1)
    assert found.count == 50 and found.correct == int((guesses == targets).sum())
    assert found.accuracy == found.correct / 50
    assert found.loss == pytest.approx(F.cross_entropy(outputs, targets).item(), rel=1e-12)
    assert found.f1.tolist() == pytest.approx(f1_score(targets, guesses, average=None).tolist())
    assert found.macro_f1 == pytest.approx(f1_score(targets, guesses, average="macro"))
    assert str(found).startswith("50 samples: mean loss ")


def test_parts_add_up_but_their_f1_does_not():
    outputs, targets = some(60)
    whole, parts = of(outputs, targets), [of(outputs[s], targets[s]) for s in (slice(0, 30), slice(30, 60))]
    both = parts[0] + parts[1]
    for name in ("hits", "predicted", "actual"):
        assert torch.equal(getattr(both, name), getattr(whole, name)) and getattr(both, name).dtype is torch.int64
    assert both.loss == pytest.approx(whole.loss, rel=1e-6)
    assert (both.accuracy, both.macro_f1) == (whole.accuracy, whole.macro_f1)
    # Even parts: the mean of accuracies is right, the mean of F1 scores is not.
    assert (parts[0].accuracy + parts[1].accuracy) / 2 == pytest.approx(whole.accuracy)
    assert abs((parts[0].macro_f1 + parts[1].macro_f1) / 2 - whole.macro_f1) > 1e-3


def test_counts_survive_where_float32_would_lose_them():
    one, million = 2**24 + 1, Metrics.nothing(2)
    big = Metrics(1.0, torch.tensor([one, 0]), torch.tensor([one, 0]), torch.tensor([one, 0]))
    assert (big + million).count == one != int(torch.tensor(float(one), dtype=torch.float32))


def test_classes_that_do_not_occur():
    outputs = torch.eye(5)[[0, 0, 1]]  # classes 3 and 4 are neither predicted nor there; 2 is there, and missed
    targets = torch.tensor([0, 1, 2])
    found = of(outputs, targets)
    assert found.f1[:3].tolist() == pytest.approx([2 / 3, 0, 0])
    assert found.f1[3:].isnan().all()
    assert (
        found.macro_f1 == pytest.approx(f1_score(targets, outputs.argmax(1), average="macro")) == pytest.approx(2 / 9)
    )


def test_nothing():
    empty = of(torch.empty(0, 4), torch.empty(0, dtype=torch.int64))
    assert empty.count == 0 and all(map(math.isnan, (empty.loss, empty.accuracy, empty.macro_f1)))
    outputs, targets = some(5)
    assert (empty + of(outputs, targets)).loss == of(outputs, targets).loss


def test_what_cannot_be_counted():
    outputs, targets = some(5)
    with pytest.raises(ValueError, match=r"outputs must be \(B, C\)"):
        of(outputs, targets[:4])
    with pytest.raises(ValueError, match=r"outputs must be \(B, C\)"):
        of(outputs[0], targets)
    for wrong in (-100, 4):  # -100: what PyTorch's losses ignore
        targets[0] = wrong
        with pytest.raises(ValueError, match="between 0 and 3"):
            Metrics.of(outputs, targets, lambda o, t: o.sum())
