"""The digits: the images are scikit-learn's, the split and the batches are always the same."""

import sys

import pytest
import torch

from dtlearn.models import digits as digits_file
from dtlearn.models import load_digits


@pytest.fixture(scope="module")
def digits():
    return load_digits()


def test_shapes_types_and_range(digits):
    assert digits.train_x.shape == (1437, 64) and digits.train_y.shape == (1437,)
    assert digits.test_x.shape == (360, 64) and digits.test_y.shape == (360,)
    assert digits.train_x.dtype == digits.test_x.dtype == torch.float32
    assert digits.train_y.dtype == digits.test_y.dtype == torch.int64
    assert digits.train_x.min() == 0 and digits.train_x.max() == 1


def test_the_two_parts_are_all_images_of_scikit_learn(digits):
    from sklearn.datasets import load_digits as load_from_sklearn

    data = load_from_sklearn()
    pixels = torch.cat([digits.train_x, digits.test_x]).double() * 16
    ours = torch.cat([pixels, torch.cat([digits.train_y, digits.test_y])[:, None]], dim=1)
    theirs = torch.cat([torch.from_numpy(data.data), torch.from_numpy(data.target)[:, None]], dim=1)
    assert sorted(ours.tolist()) == sorted(theirs.tolist())


def test_every_digit_is_in_both_parts(digits):
    assert digits.train_y.bincount().min() > 120
    assert digits.test_y.bincount().min() > 25


def test_the_split_is_the_one_that_published_numbers_were_made_with(digits):
    assert digits.train_y[:10].tolist() == [2, 8, 2, 6, 6, 7, 1, 9, 8, 5]
    assert digits.test_y[:10].tolist() == [7, 9, 4, 7, 0, 2, 6, 1, 3, 1]


def test_batches_are_the_same_for_the_same_seed_only(digits):
    first, again, other = (list(digits.batches(3, 8, seed=seed)) for seed in (0, 0, 1))
    assert all(torch.equal(x, u) and torch.equal(y, v) for (x, y), (u, v) in zip(first, again, strict=True))
    assert not torch.equal(first[0][0], other[0][0])


def test_an_epoch_shows_no_image_twice_and_the_next_one_is_shuffled_anew(digits):
    rows = [x for x, _ in digits.batches(28, 96)]  # 14 batches of 96 are one epoch
    first_epoch, second_epoch = torch.cat(rows[:14]), torch.cat(rows[14:])
    num_different = len(digits.train_x.unique(dim=0))
    assert num_different == len(digits.train_x)  # no two images are equal, so the next line can tell them apart
    assert len(first_epoch.unique(dim=0)) == len(second_epoch.unique(dim=0)) == 14 * 96
    assert not torch.equal(first_epoch, second_epoch)


def test_images_and_labels_stay_together(digits):
    label_of = {tuple(x.tolist()): y for x, y in zip(digits.train_x, digits.train_y.tolist(), strict=True)}
    for x, y in digits.batches(2, 50):
        assert [label_of[tuple(row.tolist())] for row in x] == y.tolist()


@pytest.mark.parametrize(("num_batches", "batch_size"), [(-1, 8), (1, 0), (1, 1438)])
def test_wrong_sizes_are_refused_at_once(digits, num_batches, batch_size):
    with pytest.raises(ValueError, match="must be"):
        digits.batches(num_batches, batch_size)


def test_without_scikit_learn_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(digits_file, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install scikit-learn"):
        load_digits()


def test_scikit_learn_is_not_imported(digits):
    """Every rank would pay a second for it; the file is read directly."""
    import subprocess

    program = "import sys; from dtlearn.models import load_digits; load_digits(); sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
