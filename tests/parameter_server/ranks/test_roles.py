"""Servers first, then workers; one of each at least."""

import pytest

from dtlearn.parameter_server.ranks.roles import ServerRoles


def test_ranks_and_numbers():
    roles = ServerRoles(2, 5)
    assert [roles.is_server(rank) for rank in range(5)] == [True, True, False, False, False]
    assert roles.num_workers == 3 and [roles.rank_of_worker(w) for w in range(3)] == [2, 3, 4]
    assert [roles.worker_of_rank(rank) for rank in (2, 3, 4)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("servers", "says"), [(0, "no server: nobody keeps"), (3, "no worker: nobody trains"), (4, "no worker")]
)
def test_somebody_serves_and_somebody_trains(servers, says):
    with pytest.raises(ValueError, match=says):
        ServerRoles(servers, 3)
