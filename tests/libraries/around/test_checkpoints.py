"""A checkpoint of real DeepSpeed's on 2 ranks: one file, and on with 1 and 4 ranks from the universal one."""

import pytest

from dtlearn.libraries.around.checkpoints import SAVED_AFTER, STEPS, checkpoint_trip
from dtlearn.libraries.comparing.requests import BASE
from dtlearn.libraries.engines.base import build_model

EXACT = 2e-6
pytestmark = [pytest.mark.libraries, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("stage", [1, 3])
def test_other_numbers_of_ranks_go_on_as_if_nothing_had_been(stage):
    trip = checkpoint_trip(stage)
    assert trip.whole == (len(list(build_model(BASE).parameters())), BASE.config.num_parameters)
    assert set(trip.resumed) == {1, 4} and len(trip.losses) == STEPS
    for losses in trip.resumed.values():
        assert len(losses) == STEPS - SAVED_AFTER
        assert losses == pytest.approx(trip.losses[SAVED_AFTER:], abs=EXACT)
        assert losses != pytest.approx(trip.losses[:SAVED_AFTER], abs=1e-2)  # the weights are not the first ones
    assert sum("optim_states" in name for name in trip.files) == 2
    assert trip.universal_files > 3 * trip.whole[0]
