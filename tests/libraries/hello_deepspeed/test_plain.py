"""The plain engine: the same on one rank and on two, with accumulation, in 16 bits, from a checkpoint."""

import pytest

from dtlearn.runtime.run import run_ranks
from tests.libraries.hello_deepspeed.runs import EXACT, apart, small, trained, trained_on_the_same


@pytest.fixture(scope="module")
def alone():
    return run_ranks(trained, 1, [small(), small(clip=0.2)], device="cpu").values[0]


def test_two_ranks_compute_what_one_computes(alone):
    variants = [small(), small(clip=0.2), small(accumulation=2), small(precision="bf16"), small(precision="fp16")]
    first, second = run_ranks(trained, 2, variants, device="cpu").values
    assert first == second
    plain, clipped, accumulated, bf16, fp16 = first
    assert apart(plain, alone[0]) <= EXACT and apart(clipped, alone[1]) <= EXACT
    assert apart(accumulated, plain) <= EXACT
    assert apart(clipped, plain) > 10 * EXACT
    assert EXACT < apart(fp16, plain) < apart(bf16, plain) < 1e-2


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_run_goes_on_from_its_checkpoint(tmp_path, precision):
    whole = small(precision=precision, steps=4)
    parts = [small(precision=precision, checkpoint_dir=str(tmp_path), steps=steps) for steps in (2, 4)]
    straight, first, rest = run_ranks(trained, 2, [whole, *parts], device="cpu").values[0]
    assert (first.first_step, rest.first_step) == (0, 2)
    assert first.losses + rest.losses == straight.losses and rest.validation == straight.validation
    assert [file.name for file in tmp_path.iterdir()] == ["plain.pt"]


def test_ranks_that_read_the_same_samples_learn_what_one_would(alone):
    first, second = run_ranks(trained_on_the_same, 2, small(), device="cpu").values
    assert first == second == pytest.approx(list(alone[0].losses), abs=EXACT)
