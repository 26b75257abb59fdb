"""The package's own functions, handed in as answers to the exercises, pass with the best tier."""

from dataclasses import replace

import pytest

from dtlearn.course import load_course
from dtlearn.grading.judging.grade import Answer, grade
from dtlearn.grading.learner.exercise_files import find_check

COURSE = load_course()
ANSWERS = {
    "ch02.broadcast": "def broadcast(x, root):\n    collectives.broadcast(x, root)\n",
    "ch02.ring_reduce_scatter": """\
def ring_reduce_scatter(parts):
    output = torch.empty_like(parts[dist.get_rank()])
    collectives.reduce_scatter(output, parts)
    return output
""",
    "ch02.ring_all_gather": """\
def ring_all_gather(x):
    gathered = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    collectives.all_gather(gathered, x)
    return gathered
""",
    "ch02.all_reduce": "def all_reduce(x):\n    collectives.all_reduce(x)\n",
    "ch02.all_to_all": """\
def all_to_all(parts):
    received = [torch.empty_like(part) for part in parts]
    collectives.all_to_all(received, parts)
    return received
""",
    "ch02.hierarchical_all_reduce": """\
def hierarchical_all_reduce(x, ranks_per_node):
    collectives.all_reduce(x, algorithm="hierarchical", ranks_per_node=ranks_per_node)
""",
    "ch03.plan_buckets": """\
def plan_buckets(nbytes, dtypes, *, bucket_cap, first_bucket_cap):
    plan = data_parallel.plan_buckets(nbytes, cap=bucket_cap, first_cap=first_bucket_cap, kinds=dtypes)
    return [list(bucket.parameters) for bucket in plan]
""",
    "ch03.shard_indices": """\
def shard_indices(n, num_replicas, rank, *, shuffle=True, **more):
    return data_parallel.samples.sampler.shard_indices(n, num_replicas, rank, shuffle=shuffle, **more)
""",
    "ch03.weighted_mean": """\
def weighted_mean(loss_sum, count):
    return data_parallel.samples.token_mean.global_mean(loss_sum, count)
""",
    "ch04.place_keys": """\
from dtlearn.parameter_server.placement import balanced


def place_keys(sizes, num_servers):
    placement = balanced({key: (size,) for key, size in sizes.items()}, num_servers)
    return {piece.key: piece.server for piece in placement.ranges}
""",
    "ch04.may_start": """\
from dtlearn.parameter_server.consistency import BoundedStaleness


def may_start(clocks, worker, bound):
    training = {number: clock for number, clock in enumerate(clocks) if clock is not None}
    return worker in training and BoundedStaleness(bound).may_start(clocks[worker], training)
""",
    "ch05.topk_feedback": """\
from dtlearn.gradient_compression.codecs.sparse import TopK
from dtlearn.gradient_compression.error_feedback import ErrorFeedback
from dtlearn.gradient_compression.hooks import CompressionState, compress_hook
from dtlearn.sharing.comm_hooks import GradBucket


def topk_feedback(gradient, residual, k, group=None):
    parameter, feedback = torch.nn.Parameter(torch.zeros_like(gradient)), ErrorFeedback(TopK(k=k))
    kept = feedback.residuals.of([parameter], gradient).copy_(residual)
    bucket = GradBucket(0, gradient.clone(), [], [parameter], True)
    return compress_hook(CompressionState(feedback, group=group), bucket).wait(), kept.clone()
""",
    "ch05.packed_signs": """\
from dtlearn.gradient_compression.codecs.sign import PackedSign


def packed_signs(chunk):
    codec = PackedSign(chunk)
    return lambda x: codec.encode(x)[::-1], lambda bits, scales, n: codec.decode((scales, bits), n)
""",
    "ch05.outer_step": """\
from dtlearn.gradient_compression.averaging.diloco import DiLoCo


def outer_step(parameters, old, buffers, lr, momentum, *, group=None):
    own = DiLoCo.__new__(DiLoCo)  # without the messages of a start
    own.parameters, own.outer_parameters = parameters, [torch.nn.Parameter(o) for o in old]  # the same memory
    own.outer_optimizer = torch.optim.SGD(own.outer_parameters, lr, momentum, nesterov=momentum > 0)
    for outer, buffer in zip(own.outer_parameters, buffers, strict=True):
        own.outer_optimizer.state[outer]["momentum_buffer"] = buffer
    own.module, own.group = torch.nn.Module(), group
    own.synchronize()
""",
    "ch05.when_it_pays": """\
from dtlearn.gradient_compression.break_even import break_even, comm_time
from dtlearn.gradient_compression.traffic import StepCall


def when_it_pays(num_ranks, nbytes, alpha, beta, *, payload, encode, decode):
    plain = comm_time([StepCall("all_reduce", nbytes)], num_ranks, latency=alpha)
    compute = encode + num_ranks * decode
    coded = comm_time([StepCall("all_gather", payload)], num_ranks, latency=alpha, compute=compute)
    found = break_even(plain, coded)
    times = {"plain": plain.seconds(beta), "coded": coded.seconds(beta)}
    return {**times, "pays": found.pays, "bandwidth": found.bandwidth}
""",
    "ch06.fifo_makespan": """\
def fifo_makespan(backward, transfer, forward):
    nbytes = tuple(range(1, len(transfer) + 1))  # each layer has a size of its own, to find its time by
    times = communication_scheduling.LayerTimes(tuple(forward), tuple(backward), nbytes)
    seconds = lambda size: transfer[int(size) - 1]
    return communication_scheduling.simulate_step(times, communication_scheduling.DDP_LIKE, seconds, 1).makespan
""",
    "ch06.send_order": """\
def send_order(ready, transfer):
    sizes = [0 if at is None else layer + 1 for layer, at in enumerate(ready)]
    parts = communication_scheduling.partitions_of(sizes, None)
    policy = communication_scheduling.SchedulingPolicy(credit_bytes=1)
    sends = play_sends(parts, [at or 0.0 for at in ready], policy, lambda size: transfer[int(size) - 1])
    return [send.partition.layer for send in sends]
""",
    "ch06.partition_with_credit": """\
def partition_with_credit(ready, nbytes, seconds_per_byte, partition, credit):
    limit = None if credit == float("inf") else credit
    policy = communication_scheduling.SchedulingPolicy("priority", partition, limit)
    parts = communication_scheduling.partitions_of(nbytes, partition)
    sends = play_sends(parts, ready, policy, lambda size: size * seconds_per_byte)
    return [(send.partition.layer, send.partition.number) for send in sends]
""",
    "ch07.format_limits": """\
def format_limits(exponent_bits, mantissa_bits, *, has_infinity=True):
    fmt = mixed_precision.Format("made up", exponent_bits, mantissa_bits, has_infinity=has_infinity)
    return {key: getattr(fmt, key) for key in ("largest", "smallest_normal", "smallest_subnormal", "epsilon")}
""",
    "ch07.round_to_bf16": """\
def round_to_bf16(x):
    return mixed_precision.round_to_nearest_even(x, mixed_precision.BF16)
""",
    "ch07.master_weights": """\
def master_weights(parameters, optimizer_class, **options):
    return mixed_precision.MasterWeights(parameters, optimizer_class, **options)
""",
    "ch07.loss_scaler": "def loss_scaler(**options):\n    return mixed_precision.GradScaler(**options)\n",
    "ch07.agree_on_overflow": """\
def agree_on_overflow(gradients):
    gradients = [torch.ones(1), *(gradient.clone() for gradient in gradients if gradient is not None)]
    parameters = [torch.nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
    for parameter, parameter.grad in zip(parameters, gradients, strict=True):
        pass
    optimizer = torch.optim.SGD(parameters)
    scaler = mixed_precision.GradScaler(group=dist.group.WORLD)
    scaler.scale(torch.ones(()))
    scaler.unscale_(optimizer)
    return scaler.was_skipped(optimizer)
""",
    "ch07.clip_over_ranks": """\
def clip_over_ranks(shards, replicated, scale, max_norm):
    for parameter in (*shards, *replicated):
        if parameter.grad is not None:
            parameter.grad /= scale
    everything = [*shards, *replicated]
    norm = mixed_precision.clip_grad_norm_(everything, max_norm, group=dist.group.WORLD, replicated=replicated)
    return norm.item() if norm.isfinite() else None
""",
    "ch07.accumulate_with_scaling": """\
def accumulate_with_scaling(model, micro_batches, scaler, optimizer, max_norm):
    own = mixed_precision.GradScaler()
    own.load_state_dict(scaler.state_dict())
    optimizer.zero_grad()
    for i, (x, y) in enumerate(micro_batches, 1):
        model.require_backward_grad_sync = i == len(micro_batches)
        own.scale(torch.nn.functional.mse_loss(model(x), y) / len(micro_batches)).backward()
    own.unscale_(optimizer)
    mixed_precision.clip_grad_norm_(model.parameters(), max_norm)
    own.step(optimizer)
    own.update()
    scaler.load_state_dict(own.state_dict())
""",
    "ch08.checkpoint": "def checkpoint(function, *inputs):\n    return memory.checkpoint(function, *inputs)\n",
    "ch08.choose_k": """\
def choose_k(num_layers, layer_bytes, input_bytes, free_bytes):
    room, fitting = torch.tensor(free_bytes), []
    dist.all_reduce(room, op=dist.ReduceOp.MIN)
    for k in range(1, num_layers + 1):
        peak = memory.segment_peak(num_layers, k, layer_bytes, input_bytes)
        if peak <= room:
            fitting.append((num_layers - len(every_k.segments(num_layers, k)[-1]), peak, k))
    return min(fitting)[2] if fitting else None
""",
    "ch08.count_a_step": """\
def count_a_step(widths, global_batch, num_ranks, *, optimizer, activation="ReLU", bias=True, dtype=torch.float32):
    layers = []
    for width_in, width_out in zip(widths, widths[1:]):
        layers += [torch.nn.Linear(width_in, width_out, bias, dtype=dtype), getattr(torch.nn, activation)()]
    model = torch.nn.Sequential(*layers[:-1])
    make = torch.optim.Adam if optimizer == "Adam" else torch.optim.SGD
    trainer = make(model.parameters(), **({"momentum": 0.9} if optimizer == "momentum" else {}))
    x, y = (torch.zeros(global_batch // num_ranks, width, dtype=dtype) for width in (widths[0], widths[-1]))
    record = memory.record_step(model, trainer, (x, y), torch.nn.functional.mse_loss)
    ends = {"activations": record.phases[0].stop, "gradients": record.phases[1].stop}
    names = ("parameters", "gradients", "optimizer state", "activations")
    return {name: record.live(name)[ends.get(name, 0)] for name in names}
""",
    "ch08.adam_state": """\
def adam_state(named_parameters, groups, convention):
    every = [p for _, p in named_parameters]
    in_groups = {p for group in groups for p in group["params"]}
    made = dict.fromkeys(("parameters", "gradients", "optimizer state"), 0)
    for is_half, name in ((True, f"mixed {convention}"), (False, "fp32 Adam")):
        own = [p for p in every if (p.element_size() == 2) == is_half]
        state = memory.arithmetic.training_state.training_state_of(own, name)
        stepped = memory.arithmetic.training_state.training_state_of([p for p in own if p in in_groups], name)
        for key in made:
            made[key] += (stepped if key == "optimizer state" else state)[key]
    return made
""",
    "ch08.activation_bytes": """\
def activation_bytes(batch, length, hidden, heads, *, kv_heads=None, dropout=True, keep_scores=True, dtype=None):
    dtype = dtype or torch.float16
    sizes = memory.ActivationSizes(batch, length, hidden, heads, kv_heads=kv_heads or 0)
    scale = max(1, dtype.itemsize // 4)  # the package has no float64
    table = memory.block_activations(sizes, memory.BlockKind(dropout=dropout, element_bytes=min(4, dtype.itemsize)))
    made = {"norms": 0, "attention": 0, "feed_forward": 0}
    for term in table:
        if term.formula != "4sb" and (keep_scores or "abs" not in term.formula):
            part = term.module.partition(".")[0]
            made["norms" if part.endswith("norm") else part] += term.bytes * (1 if term.dtype == "mask" else scale)
    return made
""",
    "ch09.flat_shards": """\
def flat_shards(tensors, num_ranks):
    plan = zero.plan_flat([t.numel() for t in tensors], num_ranks, kinds=[t.dtype for t in tensors])
    if len(plan.buckets) > 1:
        raise ValueError("several dtypes")
    (bucket,) = plan.buckets
    buffer = torch.zeros(bucket.numel, dtype=tensors[0].dtype)
    for tensor, offset in zip(tensors, bucket.offsets):
        buffer[offset:][: tensor.numel()] = tensor.flatten()

    def restore(shards):
        made = [torch.empty_like(t).flatten() for t in tensors]
        for rank, shard in enumerate(shards):
            for piece in plan.slices(rank):
                made[piece.parameter][piece.start : piece.stop] = shard[piece.offset :][: piece.numel]
        return [m.view(t.shape) for m, t in zip(made, tensors)]

    return list(buffer.view(num_ranks, -1)), restore
""",
    "ch09.zero1_step": """\
def zero1_step(flat, groups, optimizer_class, *, group=None):
    parameters = [torch.nn.Parameter(flat[one["start"] : one["stop"]]) for one in groups]
    others = [{k: v for k, v in one.items() if k not in ("start", "stop")} for one in groups]
    own = [{"params": [p], **options} for p, options in zip(parameters, others)]
    optimizer = zero.ZeroRedundancyOptimizer(own, optimizer_class, process_group=group, gradients="local")
    (flat.data,) = optimizer.flat.buffers

    def step(gradient):
        for p, one in zip(parameters, groups):
            p.grad = gradient[one["start"] : one["stop"]].clone()
        optimizer.step()
        optimizer.zero_grad()

    return step
""",
    "ch09.plan": """\
def plan(units, num_ranks, accumulation, memory_gb, activation_bytes):
    partition = zero.plan_flat(units, num_ranks, kinds=list(range(len(units))))
    padded, shard = [bucket.numel for bucket in partition.buckets], partition.shard
    two = max([x + y for x, y in zip(padded, padded[1:])] or padded)
    made = {"smallest": None}
    for stage, passes in enumerate((2, 2, accumulation + 1, 3 * accumulation)):
        weights, gradients, optimizer = (shard if stage >= divided else partition.numel for divided in (3, 2, 1))
        temporary = 2 * (max(padded) * (stage > 1) + two * (stage > 2))
        held = {"weights": 2 * weights, "gradients": 2 * gradients, "optimizer": 12 * optimizer}
        made[stage] = held | {"temporary": temporary, "sent": passes * 2 * (partition.numel - shard)}
        room = memory_gb * 10**9 - activation_bytes
        if made["smallest"] is None and sum(held.values()) + temporary <= room:
            made["smallest"] = stage
    return made
""",
    "ch09.global_norm": """\
def global_norm(shards, used, replicated, max_norm, group=None):
    made = {}
    for shard, n in zip(shards, used):
        if shard.grad is not None:
            made[id(shard)] = torch.nn.Parameter(torch.zeros(n))
            made[id(shard)].grad = shard.grad[:n]
    pieces = [*made.values(), *{id(p): p for p in replicated}.values()]
    return zero.clip_grad_norm_(pieces, max_norm, group=group, replicated=replicated).item()
""",
    "ch09.reshard": """\
def reshard(saved, num_ranks, rank):
    from dtlearn.sharing.resharding import flat_piece

    made, sizes = {}, list(saved.units.values())
    kinds = list(range(len(sizes)))
    old, new = (zero.plan_flat(sizes, n, kinds=kinds) for n in (saved.num_ranks, num_ranks))

    def pieces(partition, of_rank):
        spans = {piece.parameter: (piece.start, piece.stop) for piece in partition.slices(of_rank)}
        places = {name: spans.get(n, (0, 0)) for n, name in enumerate(saved.units)}
        return {name: flat_piece([size], *places[name]) for name, size in saved.units.items()}

    plan = zero.plan_reads([pieces(old, r) for r in range(saved.num_ranks)], pieces(new, rank))
    for bucket, (unit, reads) in zip(new.buckets, plan.items()):
        made[unit] = {"step": max(saved.step(r, unit) for r in range(saved.num_ranks))}
        for key in ("values", "exp_avg", "exp_avg_sq"):
            ends = [(r, r.start[0] - r.source.start[0], r.stop[0] - r.source.start[0]) for r in reads]
            parts = [saved.read(r.saved, unit, key, start, stop) for r, start, stop in ends]
            length = sum(map(len, parts))
            made[unit][key] = torch.cat([*parts, torch.zeros(bucket.shard - length)])
    return made
""",
    "ch09.prefetch": """\
def prefetch(units, depth, x):
    ahead = zero.stages.prefetch.Prefetcher(range(len(units)), depth)
    ahead.forward_begins()
    gathered = {}

    def use(place, x):
        for other in (place, *ahead.next_in_forward(place)):
            if other not in gathered:
                gathered[other] = units[other].gather()
        weight = gathered[place].wait()
        gathered[place] = None
        return x if units[place].skipped else units[place].compute(weight, x)

    for place in range(len(units)):
        x = use(place, x)
    return x
""",
    "ch09.bug_hunt": """\
def bug_hunt(model, batches, lr, max_norm):
    named = list(model.named_parameters())
    optimizer = zero.ZeroRedundancyOptimizer(named, torch.optim.SGD, gradients="local", lr=lr, momentum=0.9)
    for x, y in batches:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.shard_gradients()
        zero.clip_grad_norm_(optimizer.pieces, max_norm)
        optimizer.step()
    states = [None] * dist.get_world_size()
    dist.all_gather_object(states, zero.sharded_state_dict(*zero.pieces_of_stage1(model, optimizer)))
    whole = zero.consolidate(states)
    return torch.cat([whole["sharded_state"][name]["momentum_buffer"] for name, _ in named])
""",
    "ch10.balanced_partition": """\
def balanced_partition(costs, num_stages):
    return pipeline_parallel.by_cost(costs, num_stages)
""",
    "ch10.two_stages": """\
def two_stages(stage, optimizer, batches, loss_fn, *, is_first, other):
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        if is_first:
            loss = pipeline_parallel.send(stage(batch), other)
        else:
            loss = loss_fn(stage(pipeline_parallel.receive(other)), batch)
            losses.append(loss.item())
        loss.backward()
        optimizer.step()
    return losses
""",
    "ch10.gpipe": """\
def gpipe(rank, p, m, most_live):
    for start in range(0, m, most_live):
        for stage, op, k in pipeline_parallel.gpipe(rank, p, min(most_live, m - start)):
            yield stage, op, start + k
""",
    "ch10.one_f_one_b": "def one_f_one_b(rank, p, m):\n    return pipeline_parallel.one_f_one_b(rank, p, m)\n",
    "ch10.safe_order": """\
def safe_order(orders, shape, forward, backward):
    rank, made, arrived = dist.get_rank(), {}, {}
    orders = tuple(tuple(pipeline_parallel.Action(s, pipeline_parallel.Op(op), k) for s, op, k in o) for o in orders)
    placement, m = tuple(range(len(orders))), len(orders[0]) // 2
    schedule = pipeline_parallel.Schedule("the exercise's", m, placement, orders)
    for step in pipeline_parallel.with_communication(schedule)[rank]:
        if isinstance(step, pipeline_parallel.Compute):
            stage, op, microbatch = step.action
            compute, after = (forward, stage + 1) if op == "F" else (backward, stage - 1)
            made[after, op, microbatch] = compute(microbatch, arrived.get(tuple(step.action)))
            continue
        for message in step.messages:  # one after the other, in the order that all ranks have
            if message.src == rank:
                dist.send(made[tuple(message.needed_by)], message.dst)
            else:
                arrived[tuple(message.needed_by)] = torch.empty(shape)
                dist.recv(arrived[tuple(message.needed_by)], message.src)
""",
    "ch10.loss_scaling": """\
def loss_scaling(stage, activations, targets, loss_fn):
    last, sent_back, total = pipeline_parallel.PipelineStage(stage, loss_fn=loss_fn), [], 0.0
    rows = sum(map(len, targets))
    for microbatch, (inputs, target) in enumerate(zip(activations, targets)):
        loss, share = last.forward(microbatch, inputs, target), len(target) / rows
        sent_back.append(last.backward(microbatch, torch.full_like(loss, share)))
        total += loss.item() * share
    return sent_back, total
""",
    "ch10.tied_embedding": """\
def tied_embedding(copies, group):
    if not copies:
        return
    tied, total = torch.nn.Linear(1, 1, bias=False), torch.zeros_like(copies[0])
    tied.weight = torch.nn.Parameter(total.clone())
    for copy in copies:
        if copy.grad is not None:
            total += copy.grad
    if group is not None:
        tied.weight.grad = total
        average_over_replicas([tied], group=group)  # the package's own sum is for two copies
        total *= dist.get_world_size(group)
    for copy in copies:
        copy.grad = total.clone()
""",
    "ch11.interleaved": """\
def interleaved(rank, num_ranks, num_microbatches, chunks):
    schedule = pipeline_parallel.make_schedule("interleaved", num_ranks, num_microbatches, chunks)
    return [(stage, op.value, microbatch) for stage, op, microbatch in schedule.orders[rank]]
""",
    "ch11.simulator": """\
def simulator(orders, placement, times, transfer):
    Action, Op = pipeline_parallel.Action, pipeline_parallel.Op
    own = tuple(tuple(Action(stage, Op(op), k) for stage, op, k in order) for order in orders)
    count = 1 + max(k for order in orders for _, _, k in order)
    schedule = pipeline_parallel.Schedule("the exercise's", count, tuple(placement), own)
    whole = {stage for order in orders for stage, op, _ in order if op == "B"}  # their B is I and W at once
    inputs = tuple(times["B" if stage in whole else "I"][stage] for stage in range(len(placement)))
    weights = tuple(0 if stage in whole else times["W"][stage] for stage in range(len(placement)))
    taken = pipeline_parallel.StageTimes(forward=tuple(times["F"]), inputs=inputs, weights=weights)
    timeline = pipeline_parallel.simulate(schedule, taken, transfer=transfer)
    return {"makespan": timeline.makespan, "idle": timeline.idle, "peak": timeline.peak_live}
""",
    "ch11.split_backward": """\
class split_backward:
    def __init__(self, layers):
        self.layers, self.work, self.ends = layers, {}, {}

    def forward(self, k, x):
        leaf = y = x.clone().requires_grad_()
        for place, layer in enumerate(self.layers):
            y = pipeline_parallel.SplitLinear.apply(y.relu() if place else y, layer.weight, layer.bias)
        self.ends[k] = leaf, y
        return y.detach()

    def input_gradient(self, k, dy):
        leaf, y = self.ends.pop(k)
        self.work[k] = []
        with pipeline_parallel.deferred_work(self.work[k]):
            y.backward(dy)
        return leaf.grad

    def weight_gradients(self, k):
        with torch.no_grad():
            for work in self.work.pop(k):
                work()
""",
    "ch11.zero_bubble": """\
def zero_bubble(orders):
    schedule = pipeline_parallel.make_schedule("zb_h1", len(orders), len(orders[0]) // 2)
    return [[(stage, op.value, microbatch) for stage, op, microbatch in order] for order in schedule.orders]
""",
    "ch12.split_and_reassemble": """\
def split_and_reassemble(full, dim, group):
    return tensor_parallel.shard(full, dim, group=group), lambda part: tensor_parallel.unshard(part, dim, group=group)
""",
    "ch12.f_and_g": """\
from dtlearn.sharing import differentiable

class Copy(differentiable.Copy):
    @staticmethod
    def backward(ctx, gradient):  # a call is noted with a line of the answer, not with one of the package
        return differentiable.Copy.backward(ctx, gradient)

def f_and_g(group):
    return lambda x: Copy.apply(x, group), lambda x: differentiable.reduce_from(x, group=group)
""",
    "ch12.row_parallel": """\
from unittest import mock

class row_parallel(tensor_parallel.RowParallelLinear):
    def __init__(self, weight, bias, group, g):
        super().__init__(*weight.T.shape, bias is not None, dtype=weight.dtype, device="meta", group=group)
        self.load_full({"weight": weight} | ({} if bias is None else {"bias": bias}))
        self.g = g

    def forward(self, x):
        name = "dtlearn.tensor_parallel.layers.linear.reduce_from_tensor_parallel_region"
        with mock.patch(name, lambda x, group: self.g(x)):
            return super().forward(x)
""",
    "ch12.fused_qkv": """\
from unittest import mock

class fused_qkv(torch.nn.Module):
    def __init__(self, qkv, output, num_heads, num_kv_heads, group, f, g):
        super().__init__()
        t = dist.get_world_size(group)
        if num_kv_heads % t:  # the package copies such heads
            raise ValueError(f"{num_kv_heads} among {t}")
        linears = []
        for weight in (qkv, output):
            linears.append(torch.nn.Linear(*weight.T.shape, bias=False))
            linears[-1].weight = torch.nn.Parameter(weight)
        own = tensor_parallel.ParallelAttention.from_fused(
            *linears, num_heads, num_kv_heads=num_kv_heads, dtype=qkv.dtype, group=group
        )
        rows = own.query.weight, own.key.weight, own.value.weight
        self.qkv = torch.nn.Parameter(torch.cat(rows).detach())
        self.output = own.output.weight
        self.own, self.sizes, self.pair = [own], [len(row) for row in rows], (f, g)

    def forward(self, x):
        f, g = self.pair
        layers = "dtlearn.tensor_parallel"
        names = [f"{name}.weight" for name in ("query", "key", "value")]
        weights = dict(zip(names, self.qkv.split(self.sizes), strict=True))
        attention = f"{layers}.attention.attention.copy_to_tensor_parallel_region"
        row = f"{layers}.layers.linear.reduce_from_tensor_parallel_region"
        with mock.patch(attention, lambda x, group: f(x)), mock.patch(row, lambda x, group: g(x)):
            return torch.func.functional_call(self.own[0], weights, (x,))
""",
    "ch12.block_bytes": """\
from dtlearn.tensor_parallel.arithmetic import sizes, traffic

def block_bytes(*, b, s, h, t, itemsize, m, sequence_parallel, gather_again, recompute):
    options = {"sequence_parallel": sequence_parallel, "gather_again": gather_again}
    calls = traffic.block_traffic(
        sizes.BlockSizes(b, s, h, t), t, recompute="full" if recompute else "none", **options
    )
    of = lambda phase: [c for c in calls if c.phase == phase] * m
    sent = lambda calls: round(traffic.sent_elements(calls) * itemsize)
    forward, again, backward = (sent(of(phase)) for phase in ("forward", "recomputation", "backward"))
    gradients = round(12 * h * (t - 1) / t) * itemsize * sequence_parallel
    calls = (m * len(calls) + sequence_parallel) * (t > 1)
    return {"forward": forward, "recomputed": again, "backward": backward, "gradients": gradients, "calls": calls}
""",
    "ch12.sharded_cross_entropy": """\
def sharded_cross_entropy(logits, targets, group=None):
    return tensor_parallel.vocabulary_parallel_cross_entropy(logits, targets, group=group)
""",
    "ch12.dropout_seeds": """\
class dropout_seeds:
    def __init__(self, seed, group=None):
        self.tracker = tensor_parallel.tensor_parallel_manual_seed(seed, group=group)
        self.split = self.tracker.fork

    def states(self):
        return torch.get_rng_state(), self.tracker.get_state()

    def restore(self, states):
        torch.set_rng_state(states[0])
        self.tracker.set_state(states[1])
""",
    "ch12.sequence_parallel_norms": """\
def sequence_parallel_norms(model, group=None):
    for module in model.modules():
        own = module.named_parameters(recurse=False)
        if names := [name for name, p in own if getattr(p, "sequence_parallel", False)]:
            tensor_parallel.mark_sequence_parallel(module, *names)
    tensor_parallel.reduce_sequence_parallel_gradients(model, group=group)
""",
    "ch12.vocabulary_embedding": """\
def vocabulary_embedding(ids, shard, group=None):
    whole = torch.nn.Embedding(len(shard) * dist.get_world_size(group), shard.shape[1], dtype=shard.dtype)
    layer = tensor_parallel.VocabularyParallelEmbedding.from_embedding(whole, group=group)
    return torch.func.functional_call(layer, {"weight": shard}, (ids,))
""",
    "ch14.plan_memory": """\
from unittest import mock
from dtlearn import planner
from dtlearn.memory.arithmetic.published import ModelSizes, zero_bytes
from dtlearn.memory.arithmetic.training_state import training_state
from dtlearn.planner.memory import block_bytes, live_microbatches

def plan_memory(layers, hidden, heads, vocabulary, length, batch, *, tp, pp, dp, microbatch, zero, **how):
    model = ModelSizes("of the exercise", layers, hidden, heads, vocabulary, length)
    axes = planner.Axes(tp, pp, dp)
    run = planner.TrainingRun(model, None, axes, batch, microbatch, length, fused_attention=False, **how)
    numbers = layers // pp * ((12 * hidden**2 + 7 * hidden) // tp + 6 * hidden) + vocabulary * hidden // tp
    numbers += 2 * hidden * (pp == 1)
    padded = -(-numbers // dp) * dp
    whole, shared = training_state(numbers, "mixed 18"), zero_bytes(training_state(padded, "mixed 18"), zero, dp)
    made = {name: min(size, shared[name]) for name, size in whole.items()}
    made["optimizer"] = made.pop("optimizer state")
    exact = memory.block_activations
    paper = lambda *sizes: [row for row in exact(*sizes) if row.formula != "4sb"]  # without the norms' statistics
    with mock.patch("dtlearn.planner.memory.block_activations", paper):
        block, live = block_bytes(run), live_microbatches(run)
    made["activations"] = round(live * layers // pp * block.held + block.whole - block.held)
    return made
""",
    "ch14.mesh_coordinates": """\
def mesh_coordinates(rank, sizes, axis, step):
    places = page_mesh.coordinates(rank, sizes)
    moved = (places[axis] + step) % sizes[axis] - places[axis]
    return places, rank + moved * page_mesh.strides(sizes)[axis]
""",
    "ch14.mesh_groups": """\
def mesh_groups(sizes, wanted):
    sizes = {str(axis): size for axis, size in sizes.items()}  # the check's names have hashes of their own
    order = (*sizes, *(axis for axis in FROM_FAST_TO_SLOW if axis not in sizes))
    layout, mine = MeshLayout(**sizes, order=order), []
    for axes in wanted:
        for ranks in layout.groups(*map(str, axes)):
            group = dist.new_group(list(ranks))
            mine += [group] if dist.get_rank() in ranks else []
    return mine
""",
    "ch14.mesh_batch": """\
def mesh_batch(model, load, num_rows, groups):
    dp = groups["dp"]
    inputs, targets = load(torch.arange(num_rows).chunk(dp.size())[dp.rank()].tolist())
    total = page_mesh.count_tokens(targets, groups)
    loss_sum = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), reduction="sum")
    return data_parallel.samples.token_mean.scale_for_averaging(loss_sum, total, group=dp)
""",
    "ch14.mesh_norm": """\
def mesh_norm(parameters, groups, *, alike, elsewhere, zero, max_norm):
    not_here = elsewhere | (alike if dist.get_rank(groups["tp"]) > 0 else set())
    counted = [parameter for name, parameter in parameters.items() if name not in not_here]
    over = [groups[axis] for axis in ("tp", "pp", "dp")[: 2 + zero]]
    return clip_grad_norm_(parameters.values(), max_norm, counted=counted, groups=over).item()
""",
    "ch16.interval": """\
from dtlearn.production.goodput import expected_goodput

def interval(step, save, restart, mtbf):
    numbers = range(1, 2 + round(mtbf / (step or 1)))
    goodputs = {n: expected_goodput(n * step, save, restart, mtbf) for n in numbers}
    return max(goodputs.items(), key=lambda row: row[1])
""",
    "ch16.reshard": """\
from dtlearn.production import page_resharding as page
from dtlearn.sharing.resharding import Box

def reshard(saved, start, shape):
    box = lambda start, shape: Box(start, tuple(first + n for first, n in zip(start, shape)))
    there = {box(first, lengths): file for file, first, lengths in saved}
    wanted, boxes = box(start, shape), list(there)
    reads = page.plan(boxes, [wanted])
    places = [(boxes[read.writer], read.box) for read in reads]
    return [(there[own], page.place(common, own), page.place(common, wanted)) for own, common in places]
""",
}
NAIVE = {
    "ch02.broadcast": (
        "DTL-RULE-ROUNDS",
        'def broadcast(x, root):\n    collectives.broadcast(x, root, algorithm="naive")\n',
    ),
    "ch02.all_reduce": ("DTL-RULE-BYTES", 'def all_reduce(x):\n    collectives.all_reduce(x, algorithm="tree")\n'),
}


def judged(id, source):
    exercise = COURSE.exercise(id)
    head = "import torch\nimport torch.distributed as dist\nfrom dtlearn import collectives\n"
    head += "import dtlearn.data_parallel.samples.sampler, dtlearn.data_parallel.samples.token_mean\n"
    head += "from dtlearn import communication_scheduling\n"
    head += "from dtlearn.communication_scheduling.simulate import play_sends\n"
    head += "from dtlearn import data_parallel, memory, mixed_precision, pipeline_parallel, tensor_parallel, zero\n"
    head += "from dtlearn.hybrid_parallel import FROM_FAST_TO_SLOW, MeshLayout, page_mesh\n"
    head += "from dtlearn.memory.recomputation import every_k\n"
    head += "from dtlearn.pipeline_parallel.runner.gradients import average_over_replicas\n"
    head += "from dtlearn.sharing.clipping import clip_grad_norm_\n\n\n"
    answer = Answer(head + source, "exercises/answer.py", exercise.name)
    check = replace(find_check(COURSE, exercise), reads=())  # a learner may not hand them in
    sizes = [4] if 4 in exercise.world_sizes else exercise.world_sizes
    return grade(exercise, check, answer, seed=2, world_sizes=sizes)


@pytest.mark.every_answer
@pytest.mark.parametrize("id", ANSWERS)
def test_the_package_passes(id):
    verdict = judged(id, ANSWERS[id])
    limits = COURSE.exercise(id).budget.values()
    best = "optimal" if any("optimal" in tiers for tiers in limits) else "correct"
    assert verdict.passed and verdict.tier == best, (verdict.first_fault, verdict.notes)


@pytest.mark.every_answer
@pytest.mark.parametrize("id", NAIVE)
def test_its_slower_algorithms_do_not(id):
    code, source = NAIVE[id]
    verdict = judged(id, source)
    assert not verdict.passed and {r.code for r in verdict.results} <= {"", code}, verdict.first_fault
