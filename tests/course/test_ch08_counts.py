"""What the checks of chapter 8 count is what the memory ledger and the package's tables count."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from dtlearn.checks.ch08_memory import activation_bytes, adam_state, count_a_step
from dtlearn.checks.ch08_memory._counts import find_mistakes
from dtlearn.memory import ActivationSizes, BlockKind, MemoryLedger, block_activations, paper_block, training_state

CHECKS = [activation_bytes, adam_state, count_a_step]


def all_inputs(module):
    """The inputs of each rank in each case."""
    return [i for case in module.CHECK.all_cases(4, seed=3) for i in module.CHECK.inputs(case)]


@pytest.mark.parametrize("module", CHECKS)
def test_each_mistake_is_told_by_its_name_in_the_first_case_that_shows_it(module):
    unseen = set(module.SAYS)
    for case in module.CHECK.all_cases(4, seed=3):
        given = module.CHECK.inputs(case)
        for name, (code, text) in module.SAYS.items():
            got = [module.count(i, frozenset([name])) for i in given]
            if name in unseen and got != module.expected(case, given):
                unseen.discard(name)
                found = find_mistakes(module.count, module.SAYS, given, got)
                assert found.code == code and text in found.text, (case.name, name, found)
    assert not unseen


def test_two_mistakes_are_both_told():
    for case in count_a_step.CHECK.all_cases(4, seed=3):
        given = count_a_step.CHECK.inputs(case)
        got = [count_a_step.count(i, frozenset({"inputs", "no outputs"})) for i in given]
        found = find_mistakes(count_a_step.count, count_a_step.SAYS, given, got)
        assert all(count_a_step.SAYS[name][1] in found.text for name in ("inputs", "no outputs"))


def test_numbers_without_a_reason_are_shown():
    case = count_a_step.CHECK.all_cases(4, seed=3)[0]
    given = count_a_step.CHECK.inputs(case)
    got = [{**count_a_step.count(i), "gradients": k} for k, i in enumerate(given)]
    found = find_mistakes(count_a_step.count, count_a_step.SAYS, given, got)
    assert found.code == "DTL-VALUE" and "it is 0" in found.text
    got = [{**count_a_step.count(i), "gradients": count_a_step.count(i)["gradients"] / 2**30} for i in given]
    assert "in GiB" in find_mistakes(count_a_step.count, count_a_step.SAYS, given, got).text


@pytest.mark.parametrize("i", all_inputs(count_a_step))
def test_a_step_has_the_bytes_that_the_ledger_counts(i):
    (widths, batch, ranks), options = i["sizes"], count_a_step._DEFAULTS | i["options"]
    dtype, layers = getattr(torch, options["dtype"]), []
    for width_in, width_out in pairwise(widths):
        layers += [nn.Linear(width_in, width_out, options["bias"], dtype=dtype), getattr(nn, options["activation"])()]
    model = nn.Sequential(*layers[:-1])
    optimizer = (
        torch.optim.Adam(model.parameters())
        if options["optimizer"] == "Adam"
        else torch.optim.SGD(model.parameters(), momentum=0.9 if options["optimizer"] == "momentum" else 0.0)
    )
    x, y = (torch.zeros(batch // ranks, width, dtype=dtype) for width in (widths[0], widths[-1]))
    with MemoryLedger(model, optimizer, inputs=(x, y)) as ledger:
        with ledger.phase("forward"):
            loss = nn.functional.mse_loss(model(x), y)
        with ledger.phase("backward"):
            loss.backward()
        optimizer.step()
    record = ledger.record()
    ends = dict(zip(("activations", "gradients"), (phase.stop for phase in record.phases), strict=True))
    assert count_a_step.count(i) == {name: record.live(name)[ends.get(name, -1)] for name in count_a_step.count(i)}


@pytest.mark.parametrize("convention", [16, 18, 20])
def test_a_plain_16_bit_model_has_the_bytes_of_the_convention(convention):
    for i in all_inputs(adam_state):
        parameters = [{**one, "dtype": "bfloat16", "kind": "b"} for one in i["parameters"]]
        groups = [[*range(len(parameters))], []]
        elements = sum(torch.Size(one["shape"]).numel() for one in parameters)
        counted = adam_state.count({"parameters": parameters, "groups": groups, "convention": convention})
        assert counted == training_state(elements, f"mixed {convention}")


@pytest.mark.parametrize("i", all_inputs(adam_state))
def test_a_float32_model_has_the_bytes_that_the_ledger_counts(i):
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
        ends = {name: record.live(name)[-1] for name in ("parameters", "gradients", "optimizer state")}
        return {**ends, "optimizer state": ends["optimizer state"] - steps}

    parameters = [{**one, "dtype": "float32"} for one in i["parameters"]]
    given = {**i, "parameters": parameters}
    assert adam_state.count(given) == adam_state.on_rank(count_them, **given)


@pytest.mark.parametrize("i", all_inputs(activation_bytes))
def test_a_block_has_the_bytes_of_the_packages_table(i):
    """Without the statistics of norms, which have 4sb bytes each."""
    (batch, length, hidden, heads), options = i["sizes"], i["options"]
    item = activation_bytes._BYTES[options.get("dtype", "float16")]
    sizes = ActivationSizes(batch, length, hidden, heads, kv_heads=options.get("kv_heads") or 0)
    if item > 4:
        pytest.skip("the table has no float64")
    table = block_activations(sizes, BlockKind(dropout=options.get("dropout", True), element_bytes=item))
    counted = dict.fromkeys(activation_bytes.count(i), 0)
    for term in table:
        is_kept = term.formula != "4sb" and (options.get("keep_scores", True) or "abs" not in term.formula)
        part = term.module.partition(".")[0]
        counted["norms" if part.endswith("norm") else part] += term.bytes * is_kept
    assert activation_bytes.count(i) == counted


def test_with_16_bits_and_dropout_it_is_the_papers_formula():
    for i in all_inputs(activation_bytes):
        sizes = ActivationSizes(*i["sizes"])
        b, s, h, a = i["sizes"]
        counted = sum(activation_bytes.count({**i, "options": {}}).values())
        assert counted == sum(term.bytes for term in paper_block(sizes)) == 34 * s * b * h + 5 * a * b * s * s
        assert sum(activation_bytes.count({**i, "options": {"keep_scores": False}}).values()) == 34 * s * b * h
