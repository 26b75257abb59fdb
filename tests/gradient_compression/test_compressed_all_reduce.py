"""The compressed all-reduce: all ranks in one process; sent plus kept is given, on both sides; bytes; bad input."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.gradient_compression.codecs.sign import PackedSign
from dtlearn.gradient_compression.codecs.sparse import TopK
from dtlearn.gradient_compression.compressed_all_reduce import CompressedAllReduce
from dtlearn.runtime.device import device as here
from tests.devices import run_ranks

CALLS, CHUNK = 4, 8


def vector(rank, call, numel, dtype=torch.float64):
    return torch.randn(numel, generator=torch.Generator().manual_seed(100 * rank + call), dtype=dtype)


def compressed(x):
    """Signs and mean |x| of chunks, written out."""
    return torch.cat([(2.0 * (part >= 0).double() - 1.0) * part.abs().mean() for part in x.split(CHUNK)] or [x])


def simulated(ranks, numel):
    """By call: the mean that all get, the workers' errors, the servers' errors one after the other."""
    size = -(-numel // (8 * ranks)) * 8
    worker, server, found = torch.zeros(ranks, numel, dtype=torch.float64), torch.zeros(numel, dtype=torch.float64), []
    for call in range(CALLS):
        given = torch.stack([vector(rank, call, numel) for rank in range(ranks)]) + worker
        by_shard = lambda x: torch.cat([compressed(part) for part in x.split(size)] or [x])  # noqa: E731
        sent = torch.stack([by_shard(row) for row in given])
        mean = sent.mean(0) + server
        result = by_shard(mean)
        worker, server = given - sent, mean - result
        found.append((result, worker, server))
    return found


def calls(numel):
    reducer = CompressedAllReduce(numel, PackedSign(CHUNK), like=torch.zeros(1, dtype=torch.float64, device=here()))
    rank, found = dist.get_rank(), []
    for call in range(CALLS):
        x = vector(rank, call, numel).to(here())
        given = x + reducer.worker_error
        result = reducer.mean(x)
        codec = reducer.codec
        sent = torch.cat([codec.decode(codec.encode(shard), len(shard)) for shard in given.split(reducer.sizes)])
        kept = reducer.worker_error
        whole = torch.equal(kept, given - sent) and bool((sent + kept - given).abs().max() < 1e-15)
        found.append((result.cpu(), kept.cpu(), reducer.server_error.cpu(), whole))
    return found


@pytest.mark.parametrize(("ranks", "numel"), [(1, 21), (2, 37), (3, 100), (4, 12)])
def test_it_is_all_ranks_in_one_process(ranks, numel, device):
    run = run_ranks(calls, ranks, numel, device=device)
    for call, (result, worker, server) in enumerate(simulated(ranks, numel)):
        shards = [run[rank][call][2] for rank in range(ranks)]
        assert torch.allclose(torch.cat(shards), server, rtol=0, atol=1e-12)
        for rank in range(ranks):
            mine = run[rank][call]
            assert torch.equal(mine[0], run[0][call][0]) and mine[3]
            assert torch.allclose(mine[0], result, rtol=0, atol=1e-12)
            assert torch.allclose(mine[1], worker[rank], rtol=0, atol=1e-12)


def kept_and_given(numel):
    """Sums over all calls: what this rank has given, what it still keeps, what all have got."""
    reducer = CompressedAllReduce(numel, PackedSign(), like=torch.zeros(1, device=here()))
    given, got = torch.zeros(numel, device=here()), torch.zeros(numel, device=here())
    for call in range(50):
        x = vector(dist.get_rank(), call % 7, numel, torch.float32).to(here())
        given += x
        got += reducer.mean(x)
    lossless = CompressedAllReduce(numel, TopK(ratio=1.0), like=given)
    mean = lossless.mean(given).cpu()
    return given.cpu(), got.cpu(), reducer.worker_error.cpu(), reducer.server_error.cpu(), mean


def test_what_all_got_and_what_is_kept_is_the_mean_of_what_was_given(device):
    """Nothing is lost: over 50 calls, got + mean of the workers' errors + the servers' errors = mean of given."""
    run = run_ranks(kept_and_given, 2, 333, device=device)
    given, worker = (torch.stack([value[i] for value in run.values]).mean(0) for i in (0, 2))
    server = torch.cat([value[3] for value in run.values])
    assert float((run[0][1] + worker + server - given).abs().max()) < 1e-4
    assert float((run[0][1] - given).abs().max()) > 0.1  # the errors are no rounding
    assert torch.allclose(run[0][4], given, rtol=1e-6, atol=1e-6)  # of a codec that loses nothing


def for_the_record(numel):
    CompressedAllReduce(numel, PackedSign(), like=torch.zeros(1)).mean(torch.ones(numel))


def test_bytes_of_the_record():
    numel, ranks = 1 << 14, 4
    run = run_ranks(for_the_record, ranks, numel, device="cpu", record=True)
    for rank in range(ranks):
        assert run.record.nbytes(rank=rank, op="all_to_all_single") == numel // 8 + 4 * numel // 1024
        gathered = [e for e in run.record.select(rank=rank) if e.op.startswith("all_gather")]
        assert [e.nbytes for e in gathered] == [(numel // 8 + 4 * numel // 1024) // ranks]


def bad_input():
    rank, zeros = dist.get_rank(), torch.zeros(20, device=here())
    reducer = CompressedAllReduce(20, PackedSign(), like=zeros)
    reducer.mean(zeros + rank + torch.arange(20, device=here()))
    before = reducer.state_dict()
    x = zeros.clone()
    if rank == 1:
        x[3] = float("nan")
    with pytest.raises(ValueError, match="expected finite values from every rank"):
        reducer.mean(x)
    after = reducer.state_dict()
    assert torch.equal(before["worker_error"], after["worker_error"]) and bool(before["worker_error"].any())
    assert torch.equal(before["server_error"], after["server_error"])
    other = CompressedAllReduce(20, PackedSign(), like=zeros)
    other.load_state_dict(after)
    assert torch.equal(other.mean(zeros), reducer.mean(zeros))
    for wrong in ({"num_ranks": 3}, {"rank": 1 - rank}, {"worker_error": zeros[:4]}):
        with pytest.raises(ValueError, match=f"expected the errors of rank {rank} of 2, of 20 elements"):
            other.load_state_dict(after | wrong)
    assert CompressedAllReduce(0, PackedSign(), like=zeros).mean(zeros[:0]).numel() == 0


def test_nan_another_world_size_and_nothing_at_all(device):
    run_ranks(bad_input, 2, device=device)
