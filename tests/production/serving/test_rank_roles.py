import pytest
import torch.distributed as dist

import dtlearn
from dtlearn.production.serving.rank_roles import RankRoles


def test_ranks_have_roles_in_order():
    roles = RankRoles(training=2, evaluation=0, serving=2)
    assert [roles.role_of(rank) for rank in range(4)] == ["training"] * 2 + ["serving"] * 2
    assert list(roles.ranks("evaluation")) == [] and roles.world_size == 4
    with pytest.raises(ValueError, match="ranks 0 to 3; got rank 4"):
        roles.role_of(4)
    for wrong in ({"training": 0}, {"serving": -1}):
        with pytest.raises(ValueError, match="at least one rank trains"):
            RankRoles(**wrong)


def my_group(roles):
    try:
        groups = roles.make_groups()
    except ValueError as error:
        return str(error)
    return {role: dist.get_process_group_ranks(group) for role, group in groups.items()}


def test_each_rank_has_the_group_of_its_role():
    found = list(dtlearn.run_ranks(my_group, 3, RankRoles(2, 1, 0)))
    assert found == [{"training": [0, 1]}] * 2 + [{"evaluation": [2]}]
    assert "roles are for 4 ranks, and the job has 2" in dtlearn.run_ranks(my_group, 2, RankRoles(2, 1, 1))[0]
