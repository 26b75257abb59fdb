"""This rank's stages: the parts of one whole model under every layout, and nothing of the other stages."""

import pytest
import torch

import dtlearn
from dtlearn.hybrid_parallel import MeshLayout, build_stages, make_groups, random_seed
from dtlearn.models import GPT
from dtlearn.tensor_parallel import ParallelGPT
from dtlearn.tensor_parallel.random_states import SPLIT_OFFSET
from tests.devices import run_ranks
from tests.hybrid_parallel.runs import config


def parts(tied):
    """The difference of each parameter, by stage and name, from this rank's part of the whole; asserts its device."""
    torch.manual_seed(torch.distributed.get_rank())
    groups = make_groups(MeshLayout(tp=2))
    sizes = config(tied)
    stages = build_stages(sizes, (0, 3, 6), [0, 1], seed=4, device=dtlearn.device(), groups=groups)
    torch.manual_seed(4)
    whole = ParallelGPT.from_gpt(GPT(sizes), group=groups.tp).state_dict()
    found = {}
    for number, stage in stages.items():
        for name, parameter in stage.named_parameters():
            assert parameter.device.type == dtlearn.device().type
            found[number, name] = (parameter.cpu() - whole[name]).abs().max().item()
    return found


@pytest.mark.parametrize("tied", [False, True])
def test_each_stage_has_its_part_of_one_model(tied, device):
    for found in run_ranks(parts, 2, tied, device=device):
        assert set(found.values()) == {0.0}
        assert len(found) == 2 + 4 * 16 + 3  # embeddings, blocks, and the head, which is a copy if tied
        assert (0, "embedding.token.weight") in found and (1, "head.projection.weight") in found


def one_stage():
    groups = make_groups(MeshLayout())
    whole = build_stages(config(True), (0, 6), [0], seed=0, groups=groups)[0]
    last = build_stages(config(), (0, 3, 6), [1], seed=0, groups=groups)
    names = [name for name, _ in last[1].named_parameters()]
    return (
        len(list(whole.parameters())),
        whole.get_parameter("head.projection.weight") is next(whole.parameters()),
        names,
    )


def test_a_tied_head_in_one_stage_is_one_parameter_and_other_stages_are_not_built():
    number, is_one, names = run_ranks(one_stage, 1, device="cpu")[0]
    assert is_one and number == 2 + 4 * 16 + 2
    assert {name.split(".")[1] for name in names if name.startswith("blocks")} == {"2", "3"}
    assert not any(name.startswith("embedding") for name in names)


def test_no_two_states_have_one_seed_but_along_tp():
    layout = MeshLayout(tp=4, pp=3, dp=5, cp=2, ep=2)
    shared = {rank: random_seed(layout, rank, 1234) for rank in range(layout.world_size)}
    own = {seed + SPLIT_OFFSET + layout.coordinates(rank).tp for rank, seed in shared.items()}
    assert len(set(shared.values())) == layout.world_size // 4
    assert len(own) == layout.world_size and not own & set(shared.values())
    for rank in shared:
        assert {shared[other] for other in layout.group(rank, "tp")} == {shared[rank]}
