"""What one mesh saved, another one reads: parameters, optimizer state, and the steps that follow."""

import pytest
import torch

import dtlearn
from dtlearn.hybrid_parallel import load_mesh_states, mesh_state, whole_parameters
from dtlearn.models import max_difference
from tests.data_parallel.runs import message_of
from tests.devices import run_ranks
from tests.hybrid_parallel.runs import LAYOUTS, TOLERANCE, batches, float64, in_one_process, make, on_cpu

# From which mesh to which one; all with tied embeddings, whose copy is saved once.
MOVES = {
    "zero 1 to a plain pipeline": (("tp2 dp2", {"zero": 1}), ("pp2", {})),
    "a v of stages to zero 3": (("pp2", {"schedule": "v_min"}), ("tp2 dp2", {"zero": 3})),
    "zero 3 to zero 2": (("tp2 dp2", {"zero": 3}), ("tp2", {"zero": 2})),
    "plain replicas to one rank": (("dp4", {}), ("1", {})),
}


def saved(name, options):
    with float64():
        model = make(LAYOUTS[name], tied=True, **options)
        for tokens, targets in list(batches())[:2]:
            model.step(tokens.to(dtlearn.device()), targets.to(dtlearn.device()))
        return on_cpu(mesh_state(model))


def resumed(name, options, states):
    """The third step, and what is saved then."""
    with float64():
        model = make(LAYOUTS[name], tied=True, **options)
        load_mesh_states(model, states)
        tokens, targets = list(batches())[2]
        step = model.step(tokens.to(dtlearn.device()), targets.to(dtlearn.device()))
        return (step.loss, step.norm), on_cpu(mesh_state(model))


def moved(source, target, device="cpu"):
    (name, options), (other, others) = source, target
    states = list(run_ranks(saved, LAYOUTS[name].world_size, name, options, device=device))
    return states, run_ranks(resumed, LAYOUTS[other].world_size, other, others, states, device=device)


@pytest.mark.parametrize("name", MOVES)
def test_another_mesh_goes_on_where_the_first_one_ended(name):
    steps, parameters = in_one_process("adamw", tied=True)
    _, result = moved(*MOVES[name])
    for rank in result:
        assert abs(rank[0][0] - steps[2][0]) < TOLERANCE and abs(rank[0][1] - steps[2][1]) < TOLERANCE
    states = [rank[1] for rank in result]
    assert max_difference(whole_parameters(states), parameters).value < TOLERANCE


def test_on_another_device(other_device):
    _, parameters = in_one_process("adamw", tied=True)
    _, result = moved(("tp2", {"zero": 1}), ("pp2", {}), other_device)
    assert max_difference(whole_parameters([rank[1] for rank in result]), parameters).value < TOLERANCE


@pytest.fixture(scope="module")
def states():
    return list(run_ranks(saved, 4, "tp2 dp2", {"zero": 1}, device="cpu"))


def test_each_element_is_saved_once(states):
    count = {}
    for state in states:
        for name, boxes in state["boxes"].items():
            for start, stop, _ in boxes:
                sizes = [b - a for a, b in zip(start, stop, strict=True)]
                count[name] = count.get(name, 0) + torch.Size(sizes).numel()
    whole = whole_parameters(states)
    assert count == {name: tensor.numel() for name, tensor in whole.items()}
    assert "head.projection.weight" not in count
    moments = whole_parameters(states, "exp_avg_sq")
    assert all((moments[name] >= 0).all() and moments[name].shape == whole[name].shape for name in whole)


def test_it_is_plain_data_for_a_file(states, tmp_path):
    for number, state in enumerate(states):
        torch.save(state, tmp_path / f"rank{number}.pt")
    files = sorted(tmp_path.glob("*.pt"))
    loaded = [torch.load(file, mmap=True, weights_only=True) for file in files]
    assert max_difference(whole_parameters(loaded), whole_parameters(states)).value == 0


def test_a_missing_rank_and_one_that_comes_twice_are_found(states):
    with pytest.raises(ValueError, match="in none of the saved states: a rank's state is missing"):
        whole_parameters(states[:3])
    with pytest.raises(ValueError, match="is in two of the saved states"):
        whole_parameters([*states, states[0]])


def of_another_model(states):
    model = make(LAYOUTS["1"])  # untied
    return message_of(lambda: load_mesh_states(model, states)), message_of(lambda: load_mesh_states(model, []))


def test_another_model_is_refused(states):
    said, none = run_ranks(of_another_model, 1, states, device="cpu")[0]
    assert "this is the state of another model: tie_embeddings is [True] there, and False here" in said
    assert "the states of all ranks that saved are needed; got none" in none
