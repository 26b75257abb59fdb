# expect: DTL-P2P-UNMATCHED
# says: rank 3, but the job has only 3 ranks
import torch
import torch.distributed as dist


def all_reduce(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    flat = x.view(-1)
    sizes = [len(chunk) for chunk in flat.tensor_split(n)]
    begin = [sum(sizes[:c]) for c in range(n + 1)]
    first, last, d, given = 0, n, n // 2, []
    while d:
        middle = (first + last) // 2
        low, high = (first, middle), (middle, last)
        keep, give = (high, low) if rank & d else (low, high)
        arriving = torch.empty_like(flat[begin[keep[0]] : begin[keep[1]]])
        sending = dist.isend(flat[begin[give[0]] : begin[give[1]]], rank ^ d)
        dist.recv(arriving, rank ^ d)
        sending.wait()
        flat[begin[keep[0]] : begin[keep[1]]] += arriving
        given.append((d, keep, give))
        (first, last), d = keep, d // 2
    for d, keep, give in reversed(given):
        sending = dist.isend(flat[begin[keep[0]] : begin[keep[1]]], rank ^ d)
        dist.recv(flat[begin[give[0]] : begin[give[1]]], rank ^ d)
        sending.wait()
