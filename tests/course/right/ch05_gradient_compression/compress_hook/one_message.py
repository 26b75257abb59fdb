import torch
import torch.distributed as dist


def compress_hook(state, bucket):
    x = bucket.buffer()
    largest = torch.linalg.vector_norm(x, ord=float("inf")).reshape(1)
    inverse = torch.where(largest == 0, 0, 127 / largest)
    codes = torch.round(x * inverse).clamp(-127, 127)
    codes[codes.isnan()] = 0
    message = torch.cat([codes.char().view(torch.uint8), largest.view(torch.uint8)])
    parts = [torch.empty_like(message) for _ in range(dist.get_world_size(state))]
    result = torch.futures.Future()

    def arrived(_):
        total = torch.zeros_like(x)
        for part in parts:
            total += part[:-4].view(torch.int8) * (part[-4:].clone().view(torch.float32) / 127)
        x.copy_(total / len(parts))
        result.set_result(x)

    dist.all_gather(parts, message, group=state, async_op=True).get_future().add_done_callback(arrived)
    return result
