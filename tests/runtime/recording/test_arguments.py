"""What a call means: its payload, its other end, and details as plain values."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.recording.arguments import detail, group_name, payload, peer, refuse_gaps


def test_the_payload_is_what_is_handed_in():
    mine, lists = torch.ones(2), [torch.ones(1), torch.ones(3)]
    assert payload("all_reduce", {"tensor": mine}) == [mine]
    assert payload("reduce_scatter", {"output": mine, "input_list": lists}) == lists
    assert payload("scatter", {"tensor": mine, "scatter_list": lists}) == lists
    assert payload("scatter", {"tensor": mine, "scatter_list": None}) == [mine]
    assert payload("barrier", {}) == []
    assert payload("all_reduce", {"tensor": "no tensor"}) == []


def test_the_peer_is_the_other_end_or_the_root():
    assert peer("send", {"dst": 3}) == 3
    assert peer("recv", {"src": None}) is None
    assert peer("broadcast", {"src": 1}) == 1
    assert peer("all_reduce", {}) is None


def test_details_are_plain_values():
    found = detail({"op": dist.ReduceOp.MAX, "tag": 5, "ranks": range(2)})
    assert found == {"reduce_op": "MAX", "tag": 5, "ranks": [0, 1]}
    assert detail({"tag": 0, "ranks": None}) == {}
    chunk = torch.zeros(12, dtype=torch.float64)[8:]
    assert detail({"tensor": chunk, "tag": 3}) == {"tag": 3, "at": 64, "of": 96}
    assert detail({"tensor": chunk}) == {}  # a collective's payload needs no place
    assert detail({"tensor": torch.zeros(3).to_sparse(), "tag": 0}) == {}
    assert detail({"op": dist._make_nccl_premul_sum(2.0)})["reduce_op"]  # not hashable in every version


def test_splits_are_counted_in_elements(monkeypatch):
    monkeypatch.setattr(dist, "get_world_size", lambda group: 2)
    call = {"output": torch.zeros(4, 3), "input": torch.zeros(5, 3), "group": None, "output_split_sizes": None}
    assert detail({**call, "input_split_sizes": [1, 4]}) == {"splits": [[3, 12], [6, 6]]}
    assert detail({**call, "input_split_sizes": [1, 3]}) == {}  # torch refuses them, on this rank
    assert detail({**call, "input_split_sizes": None, "input": torch.tensor(1.0)}) == {}


def test_the_thread_of_a_call_is_noted_but_for_the_main_one():
    with ThreadPoolExecutor(1, thread_name_prefix="loader") as pool:
        assert pool.submit(detail, {}).result() == {"thread": "loader_0"}
    assert detail({}) == {}


MATRIX = torch.zeros(3, 4)


@pytest.mark.parametrize("part", [MATRIX[:, 0], MATRIX[:, :2], MATRIX.flatten()[::2], MATRIX[:1, :1].expand(2, 2)])
@pytest.mark.parametrize("op", ["all_reduce", "reduce", "broadcast"])
def test_what_gloo_would_mix_up_is_refused(op, part):
    with pytest.raises(ValueError, match=rf"{op} got a tensor with gaps in memory .*x\.copy_\(y\)"):
        refuse_gaps(op, {"tensor": part})


@pytest.mark.parametrize("op", ["all_reduce", "broadcast", "scatter"])
def test_a_sparse_tensor_is_told_what_it_is(op):
    with pytest.raises(ValueError, match=rf"{op} got a sparse tensor .*x\.to_dense\(\)"):
        refuse_gaps(op, {"tensor": MATRIX.to_sparse()})


def test_what_gloo_gets_right_is_not_refused():
    for part in (MATRIX, MATRIX[0], MATRIX.t(), MATRIX.reshape(3, 2, 2).permute(2, 0, 1), MATRIX[:, :0], "no tensor"):
        refuse_gaps("all_reduce", {"tensor": part})
    refuse_gaps("all_gather", {"tensor": MATRIX[:, 0]})
    refuse_gaps("barrier", {})


def test_a_part_arrives_in_the_usual_layout_only():
    with pytest.raises(ValueError, match="reduce_scatter got"):
        refuse_gaps("reduce_scatter", {"output": MATRIX.t(), "input_list": [MATRIX]})
    with pytest.raises(ValueError, match="scatter got"):
        refuse_gaps("scatter", {"tensor": MATRIX[:, 0]})
    refuse_gaps("scatter", {"tensor": MATRIX, "scatter_list": [MATRIX.t()]})


def test_a_group_that_torch_does_not_list_is_unknown(monkeypatch):
    """As that in which torch.distributed.rpc begins."""
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    assert group_name(object()) == "unknown"
    assert group_name(None) == "world"
