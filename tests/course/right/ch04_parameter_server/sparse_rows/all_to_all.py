import torch
import torch.distributed as dist


def exchange(parts, counts, like):
    """parts[r] goes to rank r; counts[r] rows come from rank r."""
    received = like.new_empty(sum(counts), *like.shape[1:])
    dist.all_to_all_single(received, torch.cat(parts), counts, [len(part) for part in parts])
    return received


def sparse_rows(num_servers, width, lr, table, sums, ids, gradient_of):
    n, is_server = dist.get_world_size(), table is not None
    no_ids, no_rows = torch.empty(0, dtype=torch.int64), torch.empty(0, width)
    rows, where = (no_ids, no_ids) if is_server else ids.unique(return_inverse=True)
    owner = rows % num_servers
    order = owner.sort(stable=True).indices  # the rows of server 0, then those of server 1
    asks = owner.bincount(minlength=n)
    asked = torch.empty(n, dtype=torch.int64)
    dist.all_to_all_single(asked, asks)
    asks, asked = asks.tolist(), asked.tolist()
    requests = exchange(list(rows[order].split(asks)), asked, no_ids) // num_servers
    answers = list(table[requests].split(asked)) if is_server else [no_rows] * n
    values = torch.empty(len(rows), width)
    values[order] = exchange(answers, asks, no_rows)
    gradient = torch.zeros_like(values)
    if not is_server:
        gradient.index_add_(0, where, gradient_of(values[where]))
    pushed = exchange(list(gradient[order].split(asks)), asked, no_rows)
    if is_server:
        touched, where = requests.unique(return_inverse=True)
        total = torch.zeros(len(touched), width).index_add_(0, where, pushed)
        sums[touched] += total.square()
        table[touched] -= lr * total / (sums[touched].sqrt() + 1e-10)
