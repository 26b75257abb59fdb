"""The lists of operators fit this version of torch."""

import pytest
import torch
import torch.distributed._functional_collectives

from dtlearn.runtime.recording.operators import C10D, FUNCTIONAL, flat

# They do not communicate.
SILENT = {"check_for_nan", "wait_tensor", "_wrap_tensor_autograd"}


def schemas(namespace: str) -> dict[str, list[str]]:
    """{operator: names of its arguments} of a namespace."""
    names = [n.split("::")[1] for n in torch._C._dispatch_get_all_op_names() if n.startswith(f"{namespace}::")]
    return {n: [a.name for a in getattr(getattr(torch.ops, namespace), n).default._schema.arguments] for n in names}


def test_every_operator_of_this_torch_is_known():
    assert set(schemas("c10d")) - SILENT <= set(C10D)
    assert set(schemas("_c10d_functional")) - SILENT <= set(FUNCTIONAL)


@pytest.mark.parametrize("name", C10D)
def test_arguments_stand_where_the_list_says(name):
    found = schemas("c10d").get(name)
    if found is None:
        pytest.skip("this version of torch does not have it")
    known = C10D[name]
    assert found[known.group] == "process_group"
    if known.tensors is not None:
        assert found[known.tensors].startswith(("input", "tensors"))
    if known.peer is not None:
        assert found[known.peer] in ("src", "dst", "root_rank")
    if known.tag is not None:
        assert found[known.tag] == "tag"
    assert ("async_op" in found) == (known.asynchronous is not None)
    if known.asynchronous is not None:
        assert found[known.asynchronous] == "async_op"


def test_tensors_are_found_in_lists_of_lists():
    a, b = torch.ones(1), torch.ones(2)
    assert flat([[a], [b]]) == [a, b]
    assert flat(a) == [a]
    assert flat(None) == flat([[], None, "text"]) == []
