"""What the images of the chapters show, in words: the description in each file, for people who do not see it."""

IN_WORDS = {
    "ch01_ranks/training_steps": (
        "Two recorded training steps on four ranks: after forward and backward each step has an all-reduce of the "
        "gradients and one of the loss; hollow bars are ranks that wait for the last rank to call."
    ),
    "ch01_ranks/rendezvous": (
        "Recorded store calls of four ranks: each writes its own key and waits for the others' keys; rank 3 comes "
        "0.3 s late, and all wait for it."
    ),
    "ch01_ranks/hang": (
        "Recorded run that hangs: ranks 0, 2 and 3 are in an all_reduce that never returns; rank 1 ended without it."
    ),
    "ch02_collectives/ring_all_reduce": (
        "Recorded ring all-reduce of four ranks on a circle, step by step: after three steps of reduce-scatter each "
        "rank has one complete chunk, after three steps of all-gather every rank has all four."
    ),
    "ch03_data_parallel/sample_grid": (
        "Which of four ranks sees which of 22 samples: padded, two samples are seen twice; with drop_last two are "
        "never seen; for evaluation each is seen once; shuffled, each epoch has another order."
    ),
    "ch03_data_parallel/bucket_timeline": (
        "Recorded training steps of two ranks on an emulated link of 1 Gb/s: with an all-reduce for each parameter "
        "after backward, both ranks wait for all of them; with buckets of 4 MiB, many all-reduces go on while "
        "backward computes, and only the last ones are waited for."
    ),
    "ch04_parameter_server/hot_links": (
        "Recorded bytes on the link of each rank in one step of four workers: one server sends and receives four times "
        "what a worker does; of two servers each carries half of that, of four a quarter, as much as a worker. In a "
        "ring each of four ranks carries one and a half times as much as a worker."
    ),
    "ch05_gradient_compression/digits_every_step": (
        "The loss of a classifier of digits on four ranks over an emulated link of 100 Mb/s, over steps, over bytes, "
        "over seconds, for nine methods. Top-k, signs and PowerSGD with error feedback reach 0.5 with about a "
        "twentieth of the bytes of plain gradients; random-k and signs without feedback do not reach it."
    ),
    "ch05_gradient_compression/digits_rarely": (
        "The same for 1-bit Adam, local SGD, post-local SGD, DiLoCo and streaming DiLoCo beside plain gradients: all "
        "reach 0.5 in about as many steps or fewer, with a tenth to a quarter of the bytes."
    ),
    "ch05_gradient_compression/text_every_step": (
        "The loss of a small GPT with Adam on four ranks over an emulated link of 100 Mb/s, over steps, bytes and "
        "seconds, for nine methods. After 100 steps fp16 and QSGD are where plain gradients are, near 2.6; signs "
        "without feedback and deep gradient compression near 2.75; top-k, signs with feedback and PowerSGD near 2.85; "
        "random-k at 3.3. Top-k needs the fewest bytes to a loss of 3."
    ),
    "ch05_gradient_compression/text_rarely": (
        "The same GPT with 1-bit Adam, local SGD, post-local SGD, DiLoCo and streaming DiLoCo beside plain gradients. "
        "Local SGD needs a seventh of the bytes to a loss of 3, the others about a quarter."
    ),
    "ch06_communication_scheduling/lanes": (
        "Recorded steps of six layers on an emulated link of 100 Mb/s, as lanes of backward, transfers and the next "
        "forward pass. First in, first out: forward begins after the last transfer, which is layer 0's. By priority: "
        "layer 0 is sent as soon as it is ready, forward begins sooner, and the others' pieces arrive while it runs."
    ),
    "ch07_mixed_precision/gradients": (
        "Gradients of a GPT over powers of two, layer by layer: without a loss scale many of them become 0 in fp16, "
        "above all those of queries and keys; with the loss times 65,536 nearly none."
    ),
    "ch08_memory/step_memory": (
        "Recorded bytes of a training step of a GPT, stacked by category: parameters, optimizer state and buckets of "
        "DDP all the time; activations rise through forward and fall through backward, while gradients grow. The peak "
        "is early in backward, with the operation and the line that made the largest storage there."
    ),
    "ch09_zero/shard_map": (
        "Who owns which of 51 elements of two layers on four ranks, in three maps: flat with one element of padding, "
        "by the rows of each parameter, where the last rank owns nothing, and as whole tensors, where the first rank "
        "owns nearly half."
    ),
    "ch09_zero/unit_timeline": (
        "Recorded training steps of ZeRO's stage 3 on an emulated link of 1 Gb/s: what a rank computes, what its link "
        "carries, and how many bytes of weights are gathered. Without prefetch each of four units waits for its "
        "all-gather; with prefetch the next unit's runs meanwhile, and two units are gathered at once."
    ),
    "ch10_pipeline_parallel/schedules": (
        "Two pipeline schedules of 4 ranks and 8 micro-batches on one time axis, both equally long. In GPipe every "
        "rank does all forward passes, waits, and does all backward passes. In 1F1B each rank does a few forward "
        "passes, then one forward and one backward pass in turn; its idle time is as long, in several pieces."
    ),
    "ch11_pipeline_schedules/smaller_bubbles": (
        "Three pipeline schedules of four ranks and eight micro-batches on one time axis: 1F1B takes 33 units, the "
        "interleaved schedule with two chunks on each rank 28.5, and ZB-H1 with split backward passes 27."
    ),
    "ch12_tensor_parallel/block": (
        "A recorded transformer block on two ranks as a chain of operations, from attention's norm to the feed-forward "
        "network's second layer. With tensor parallelism there are all-reduces forward after both row-parallel layers, "
        "and backward before both column-parallel ones. With sequence parallelism each of the four is a "
        "reduce-scatter and an all-gather, which send as many bytes."
    ),
    "ch14_hybrid_parallel/bloom_nodes": (
        "BLOOM's layout, tp 4 x dp 8 x pp 12 with pp outermost, on 48 nodes of 8 GPUs, from the mesh's arithmetic. In "
        "a map of the nodes one copy of the model is on every fourth node, and the data-parallel group of rank 0 on "
        "nodes 0 to 3. Below, each node of the copy has one of its stages on four GPUs, which are one tensor-parallel "
        "group."
    ),
    "ch14_hybrid_parallel/layout_front": (
        "Planned layouts of BLOOM on 384 A100 as points: time of a step against memory, both logarithmic. A dashed "
        "line is the memory of a chip; layouts above it are open marks. A line of stairs joins the layouts that no "
        "other one beats, from the fastest to the smallest."
    ),
    "ch14_hybrid_parallel/rails": (
        "Four nodes of eight GPUs, each with NVLink inside. GPU i of every node is joined by its network card to leaf "
        "switch i, in one colour for each of the eight rails; two spine switches join the leaf switches."
    ),
    "ch15_deepspeed/volumes": (
        "Recorded bytes that a rank sends in a step, in units of all parameters once, with a mark where papers have it:"
        " DDP 2 as expected, FSDP2 2.83 of 3, DeepSpeed's ZeRO 1 and 2 with their defaults 3 where the mark is at 2, "
        "ZeRO 3 2 where it is at 3; with other settings ZeRO 2 sends 2 and ZeRO 3 sends 3."
    ),
    "ch16_production/detections": (
        "Bars of the seconds from a planted fault until somebody notices it, for four faults under the course's restart"
        " and under torchrun. A killed rank is noticed within a second, and named. A rank that hangs is named by the "
        "flight recorder after 1.1 s; the time-out, after 4 s, names nobody. A lost node is named by its heartbeats."
    ),
    "ch16_production/goodput": (
        "Goodput over the seconds of training between two saves, for a save of 60 s, a restart of 10 minutes and a "
        "failure every 3 hours: a flat curve with 85 % at Young's interval, 19 minutes, and simulated jobs as points on"
        " it. Shorter intervals pay for saves, longer ones for work done twice."
    ),
}
