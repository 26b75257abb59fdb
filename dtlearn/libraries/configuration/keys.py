"""A `ds_config`, key by key: what each does, its default, and the chapter that explains it. DeepSpeed 0.19.8.

The defaults are those of the code, not of the documentation; `real_defaults` reads them from an installed DeepSpeed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

VERSION = "0.19.8"
NONE_OF_OURS = ""


@dataclass(frozen=True)
class ConfigKey:
    """A key of a ds_config.

    Attributes:
        path: with its sections, "zero_optimization.stage".
        default: what holds if it is left out.
        does: in a sentence.
        chapter: of the course, "ch09"; "" if none speaks of it.
        ours: how the course calls it: an argument, a class, or a file; "" if it has no such thing.
    """

    path: str
    default: Any
    does: str
    chapter: str = ""
    ours: str = NONE_OF_OURS


Z = "zero_optimization"
BATCH = (
    ConfigKey("train_batch_size", None, "Sequences of one update, over all ranks.", "ch03", "global_batch"),
    ConfigKey(
        "train_micro_batch_size_per_gpu", None, "Sequences of one forward pass of a rank.", "ch03", "micro_batch"
    ),
    ConfigKey("gradient_accumulation_steps", None, "Micro-batches of a rank in one update; 1 if left out.", "ch03"),
    ConfigKey("dataloader_drop_last", False, "Leave out the last batch of an epoch if it is not full.", "ch03"),
)
STEP = (
    ConfigKey("gradient_clipping", 1.0, "Largest global gradient norm; 0 clips nothing. Before 0.19.3: 0.", "ch09"),
    ConfigKey("prescale_gradients", False, "Divide gradients by the ranks before the sum, and not after it.", "ch07"),
    ConfigKey("gradient_predivide_factor", 1.0, "The part of that division that comes before the sum.", "ch07"),
    ConfigKey("gradient_allreduce_op", "mean", "Whether ranks' gradients are averaged or summed.", "ch03"),
    ConfigKey("communication_data_type", None, "The dtype in which gradients travel; None: their own.", "ch07"),
    ConfigKey("optimizer.type", None, "The optimizer that DeepSpeed makes: Adam, AdamW, Lamb, Lion, Muon, ...", "ch09"),
    ConfigKey("optimizer.params", None, "Its arguments: lr, betas, weight_decay, torch_adam, adam_w_mode.", "ch09"),
    ConfigKey("scheduler.type", None, "The schedule of the learning rate: WarmupLR, WarmupCosineLR, ...", "ch03"),
    ConfigKey("scheduler.params", None, "Its arguments.", "ch03"),
    ConfigKey("zero_allow_untested_optimizer", False, "Let ZeRO divide an optimizer that it does not know.", "ch09"),
    ConfigKey(
        "zero_force_ds_cpu_optimizer",
        True,
        "Refuse to offload any optimizer object but a DeepSpeedCPUAdam.",
        "ch09",
    ),
)
ZERO = (
    ConfigKey(
        f"{Z}.stage", 0, "What is divided: 1 optimizer state, 2 gradients too, 3 parameters too.", "ch09", "zero"
    ),
    ConfigKey(
        f"{Z}.reduce_bucket_size", 500_000_000, "Elements of gradients reduced at once; allocated whole.", "ch03"
    ),
    ConfigKey(
        f"{Z}.allgather_bucket_size", 500_000_000, "Elements of parameters gathered at once (stages 1, 2).", "ch09"
    ),
    ConfigKey(f"{Z}.overlap_comm", None, "Reduce during backward; None: in stage 3 only.", "ch06", "overlap"),
    ConfigKey(f"{Z}.contiguous_gradients", True, "Copy gradients into one buffer as they come.", "ch08"),
    ConfigKey(
        f"{Z}.reduce_scatter", True, "Reduce to the owners, in place of an all-reduce (but see the next).", "ch09"
    ),
    ConfigKey(
        f"{Z}.use_multi_rank_bucket_allreduce",
        True,
        "All-reduce every bucket, after all; false: a reduce to each owner.",
        "ch09",
    ),
    ConfigKey(f"{Z}.allgather_partitions", True, "Read nowhere in 0.19.8: what was updated is all-gathered.", "ch09"),
    ConfigKey(f"{Z}.round_robin_gradients", False, "Deal gradients out among ranks, for offload.", "ch09"),
    ConfigKey(f"{Z}.ignore_unused_parameters", True, "Take parameters without a gradient without a word.", "ch03"),
    ConfigKey(f"{Z}.sub_group_size", 1_000_000_000, "Elements that stage 3 updates at once.", "ch09"),
    ConfigKey(
        f"{Z}.stage3_prefetch_bucket_size", 50_000_000, "Elements gathered ahead of their use.", "ch06", "prefetch"
    ),
    ConfigKey(f"{Z}.stage3_param_persistence_threshold", 100_000, "Parameters below are whole on all ranks.", "ch09"),
    ConfigKey(f"{Z}.stage3_max_live_parameters", 1_000_000_000, "Elements that may be whole at once.", "ch09"),
    ConfigKey(f"{Z}.stage3_max_reuse_distance", 1_000_000_000, "Stay whole if used again within so many.", "ch09"),
    ConfigKey(
        f"{Z}.stage3_gather_16bit_weights_on_model_save", False, "Save whole weights, gathered on rank 0.", "ch09"
    ),
    ConfigKey(f"{Z}.offload_optimizer.device", "none", "Where the optimizer's state lies: none, cpu, nvme.", "ch09"),
    ConfigKey(f"{Z}.offload_optimizer.pin_memory", True, "Page-locked, for copies beside the computation.", "ch09"),
    ConfigKey(f"{Z}.offload_optimizer.ratio", 1.0, "The part that is offloaded, stage 3 only.", "ch09"),
    ConfigKey(f"{Z}.offload_param.device", "none", "Where parameters lie, stage 3 only: none, cpu, nvme.", "ch09"),
    ConfigKey(f"{Z}.offload_param.pin_memory", True, "Page-locked, for copies beside the computation.", "ch09"),
    ConfigKey(f"{Z}.zero_hpz_partition_size", 1, "ZeRO++: ranks of a node that hold the whole between them.", "ch09"),
    ConfigKey(f"{Z}.zero_quantized_weights", False, "ZeRO++: gather parameters in int8.", "ch05"),
    ConfigKey(f"{Z}.zero_quantized_gradients", False, "ZeRO++: reduce gradients in int4, by all-to-all.", "ch05"),
)
PRECISION = (
    ConfigKey("bf16.enabled", False, "The whole model in bf16, and fp32 weights in the optimizer.", "ch07"),
    ConfigKey("bf16.check_grad_overflow", True, "Skip a step whose gradients are not finite.", "ch07"),
    ConfigKey("fp16.enabled", False, "The whole model in fp16, with loss scaling.", "ch07", "GradScaler"),
    ConfigKey("fp16.loss_scale", 0.0, "The factor; 0: found as training goes.", "ch07", "init_scale"),
    ConfigKey("fp16.initial_scale_power", 16, "The first factor is 2 to this power.", "ch07", "init_scale"),
    ConfigKey("fp16.loss_scale_window", 1000, "Good steps until the factor doubles.", "ch07", "growth_interval"),
    ConfigKey("fp16.hysteresis", 2, "Overflows until it halves.", "ch07"),
    ConfigKey("fp16.min_loss_scale", 1, "It never falls below.", "ch07"),
    ConfigKey("torch_autocast.enabled", False, "torch's autocast, with fp32 parameters.", "ch07", "autocast"),
    ConfigKey("torch_autocast.dtype", None, "Its dtype.", "ch07", "autocast"),
    ConfigKey("data_types.grad_accum_dtype", None, "The dtype in which micro-batches are summed.", "ch07"),
)
ACTIVATIONS = "activation_checkpointing"
MEMORY = (
    ConfigKey(f"{ACTIVATIONS}.partition_activations", False, "Divide kept inputs over the tp ranks.", "ch08"),
    ConfigKey(f"{ACTIVATIONS}.cpu_checkpointing", False, "Keep them on the host.", "ch08", "OffloadActivations"),
    ConfigKey(f"{ACTIVATIONS}.number_checkpoints", None, "How many are kept; for the next key.", "ch08"),
    ConfigKey(f"{ACTIVATIONS}.contiguous_memory_optimization", False, "In one buffer, against gaps.", "ch08"),
)
PARALLEL = (
    ConfigKey("tensor_parallel.autotp_size", 0, "AutoTP: ranks that share each layer; 0: none.", "ch12", "tp"),
    ConfigKey("tensor_parallel.partition_config", None, "AutoTP: which layers are column, which row.", "ch12"),
    ConfigKey(
        "pipeline.stages", "auto", "Read nowhere in 0.19.8: PipelineModule(num_stages=...) decides.", "ch10", "pp"
    ),
    ConfigKey(
        "pipeline.partition",
        "best",
        "Read nowhere in 0.19.8: PipelineModule(partition_method=...) decides.",
        "ch10",
        "partition",
    ),
    ConfigKey("pipeline.activation_checkpoint_interval", 0, "Layers between two kept inputs; 0: all kept.", "ch10"),
)
OTHER = (
    ConfigKey("checkpoint.load_universal", False, "Read a universal checkpoint: any number of ranks.", "ch09"),
    ConfigKey("checkpoint.tag_validation", "WARN", "Whether ranks must agree on a checkpoint's name.", "ch09"),
    ConfigKey("steps_per_print", None, "Steps between two lines of the log."),
    ConfigKey("wall_clock_breakdown", False, "Log the time of forward, backward and step."),
    ConfigKey("comms_logger.enabled", False, "Log every collective: DeepSpeed's own recorder.", "ch01", "record=True"),
    ConfigKey("flops_profiler.enabled", False, "Count operations of one step.", "", "dtlearn.planner"),
    ConfigKey("tensorboard.enabled", False, "Write curves for TensorBoard."),
    ConfigKey("csv_monitor.enabled", False, "Write curves as text."),
    ConfigKey("dump_state", False, "Print the whole configuration at the start."),
)
DS_KEYS = (*BATCH, *STEP, *ZERO, *PRECISION, *MEMORY, *PARALLEL, *OTHER)

# Known to DeepSpeed, and rare: the checker takes them, the table leaves them out. A section stands for all its keys.
ALSO_KNOWN = (
    *(f"{Z}.{name}" for name in ("elastic_checkpoint", "load_from_fp32_weights", "compute_grad_norm", "zenflow")),
    *(f"{Z}.{name}" for name in ("legacy_stage1", "parameter_alignment", "memory_efficient_linear", "leaf_module")),
    *(f"{Z}.{name}" for name in ("pipeline_loading_checkpoint", "override_module_apply", "log_trace_cache_warnings")),
    *(f"{Z}.{name}" for name in ("enable_sanity_checks", "save_muon_momentum_buffer_in_memory")),
    *(f"{Z}.{name}" for name in ("zero_quantized_nontrainable_weights", "stage3_module_granularity_threshold")),
    *(f"{Z}.{name}" for name in ("stage3_use_all_reduce_for_fetch_params", "stage3_allgather_sequential")),
    *(f"{Z}.{name}" for name in ("stage3_model_persistence_threshold", "cpu_offload", "cpu_offload_param")),
    *(f"{Z}.{name}" for name in ("cpu_offload_use_pin_memory", "stage3_gather_fp16_weights_on_model_save")),
    *(f"{Z}.offload_optimizer.{name}" for name in ("nvme_path", "buffer_count", "pipeline_read", "pipeline_write")),
    *(f"{Z}.offload_optimizer.{name}" for name in ("fast_init", "super_offload", "cpuadam_cores_perc")),
    *(f"{Z}.offload_param.{name}" for name in ("nvme_path", "buffer_count", "buffer_size", "max_in_cpu")),
    *(f"fp16.{name}" for name in ("auto_cast", "consecutive_hysteresis", "fp16_master_weights_and_grads")),
    *(f"bf16.{name}" for name in ("immediate_grad_update", "bf16_master_weights_and_grads", "bf16_optimizer_states")),
    *("optimizer.legacy_fusion", "bfloat16", "torch_autocast.lower_precision_safe_modules"),
    *(f"{ACTIVATIONS}.{name}" for name in ("synchronize_checkpoint_boundary", "profile")),
    *("tensor_parallel", "pipeline", "checkpoint", "data_types", "comms_logger", "flops_profiler", "tensorboard"),
    *("csv_monitor", "wandb", "comet", "aio", "compile", "timers", "autotuning", "hybrid_engine", "data_efficiency"),
    *("expert_parallel", "weight_quantization", "datastates_ckpt", "sequence_parallel_size", "disable_allgather"),
    *("seq_parallel_communication_data_type", "managed_gradient_accumulation", "disable_python_gc", "vocabulary_size"),
    *("memory_breakdown", "use_data_before_expert_parallelism", "log_level", "data_parallel_size", "mesh_device"),
)
# Rejected by 0.19.7 and later (DeepSpeed issue 8489, pull request 8490), and what takes their place.
REMOVED = {
    "amp": "use bf16, fp16 or torch_autocast",
    "sparse_attention": "there is no substitute in DeepSpeed",
    "elasticity": "state the three batch keys yourself",
    "compression_training": "there is no substitute in DeepSpeed",
    "quantize_training": "there is no substitute in DeepSpeed",
    "sparse_gradients": "an embedding made with sparse=True needs no key",
    "eigenvalue": "it belonged to quantize_training",
    "graph_harvesting": "there is no substitute in DeepSpeed",
    "curriculum_learning": "use data_efficiency.data_sampling.curriculum_learning",
    "progressive_layer_drop": "there is no substitute in DeepSpeed",
    "nebula": "checkpoints go through torch.save",
    f"{Z}.mics_shard_size": "use zero_hpz_partition_size (ZeRO++)",
    f"{Z}.mics_hierarchical_params_gather": "use zero_hpz_partition_size (ZeRO++)",
    f"{Z}.zeropp_loco_param": "ZeRO++ goes without error feedback",
}
REMOVED_OPTIMIZERS = ("OneBitAdam", "ZeroOneAdam", "OneBitLamb")
OPTIMIZERS = ("Adagrad", "Adam", "AdamW", "Lamb", "MuAdam", "MuAdamW", "MuSGD", "Lion", "Muon")
# Taken still, under a name of their own now.
OLD_NAMES = {
    "bfloat16": "bf16",
    f"{Z}.cpu_offload": 'offload_optimizer: {"device": "cpu"}',
    f"{Z}.cpu_offload_param": 'offload_param: {"device": "cpu"}',
    f"{Z}.cpu_offload_use_pin_memory": "pin_memory in offload_optimizer or offload_param",
    f"{Z}.stage3_gather_fp16_weights_on_model_save": "stage3_gather_16bit_weights_on_model_save",
}
# Parsed, and asked for by no line of 0.19.8.
READ_NOWHERE = {
    "pipeline.stages": "PipelineModule(num_stages=...) decides",
    "pipeline.partition": "PipelineModule(partition_method=...) decides",
    f"{Z}.allgather_partitions": "updated parameters are all-gathered, true or false",
}
