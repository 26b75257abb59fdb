"""What the checks of chapter 8 expect is what the memory ledger, the package and the formulas of papers count."""

import pytest
import torch
from torch import nn

from dtlearn.checks.ch08_memory import activation_bytes, adam_state, count_a_step
from dtlearn.memory import MemoryLedger, training_state


def all_inputs(module):
    """The inputs of each rank in each case, with the case, and what is expected of that rank."""
    for case in module.CHECK.all_cases(4, seed=3):
        given = module.CHECK.inputs(case)
        yield from zip([case] * len(given), given, module.expected(case, given), strict=True)


def test_the_example_of_a_step_has_the_bytes_that_the_task_says():
    counted = count_a_step.step([4, 3, 2], 8, 2, optimizer="Adam")
    assert counted == {"parameters": 92, "gradients": 92, "optimizer state": 200, "activations": 80}


@pytest.mark.parametrize("convention", [16, 18, 20])
def test_a_plain_16_bit_model_has_the_bytes_of_the_convention(convention):
    for case, own, _ in all_inputs(adam_state):
        parameters = [{**one, "dtype": "bfloat16", "kind": "b"} for one in own["parameters"]]
        given = {"parameters": parameters, "groups": [[*range(len(parameters))], []], "convention": convention}
        (counted,) = adam_state.expected(case, [{**given, "look": adam_state.NAMES}])
        elements = sum(torch.Size(one["shape"]).numel() for one in parameters)
        assert counted == training_state(elements, f"mixed {convention}")


def test_a_float32_model_has_the_bytes_that_the_ledger_counts():
    """Frozen, tied and untrained parameters; Adam's numbers of steps come on top."""

    def count_them(named, groups, convention):
        model = nn.Module()
        for name, parameter in named:
            model.register_parameter(name.replace(".", "_"), parameter)
        params = [{**group, "params": [*dict.fromkeys(group["params"])]} for group in groups if group["params"]]
        optimizer = torch.optim.Adam(params)
        with MemoryLedger(model, optimizer) as ledger:
            sum(parameter.sum() for parameter in dict(named).values()).backward()
            optimizer.step()
        steps = 4 * len(optimizer.state)
        record = ledger.record()
        ends = {name: record.live(name)[-1] for name in adam_state.NAMES}
        return {**ends, "optimizer state": ends["optimizer state"] - steps}

    for case, own, _ in all_inputs(adam_state):
        given = {**own, "parameters": [{**one, "dtype": "float32"} for one in own["parameters"]]}
        given["look"] = adam_state.NAMES
        assert adam_state.expected(case, [given]) == [adam_state.on_rank(count_them, **given)]


def test_with_16_bits_and_dropout_it_is_the_papers_formula():
    for case, own, _ in all_inputs(activation_bytes):
        b, s, h, a = (own[name] for name in ("batch", "length", "hidden", "heads"))
        for options, wanted in (({}, 34 * s * b * h + 5 * a * b * s * s), ({"keep_scores": False}, 34 * s * b * h)):
            (counted,) = activation_bytes.expected(case, [{**own, "options": options, "look": activation_bytes.PARTS}])
            assert sum(counted.values()) == wanted
