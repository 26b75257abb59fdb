"""Pure functions from records and plain data to figures and tables.

The names here are what notebooks use; each is loaded when it is first used, so that a chapter pays for its own pictures
only.
"""

import importlib
from typing import Any

_NAMES = {
    "collectives.collective_picture": "collective_figure collective_words",
    "collectives.collective_steps": "collective_steps",
    "collectives.cost_curves": "Curve cost_bars cost_curves fit_words",
    "communication_scheduling.lanes": "communication_lanes",
    "communication_scheduling.makespan_curves": "makespan_curves",
    "communication_scheduling.policy_makespan": "policy_makespan",
    "data_parallel.bucket_timeline": "bucket_timeline",
    "data_parallel.ddp_picture": "ddp_picture",
    "data_parallel.sample_grid": "sample_grid sample_words",
    "data_parallel.scaling": "scaling",
    "gradient_compression.break_even": "break_even_curves break_even_words",
    "gradient_compression.error_feedback": "coordinate_over_steps",
    "gradient_compression.loss_over_cost": "loss_over_cost loss_words",
    "gradient_compression.sent_over_time": "sent_over_time",
    "hybrid_parallel.timed_layouts": "timed_layouts timed_words",
    "hybrid_parallel.fabric": "fabric_words hgx_node rail_fabric torus_fabric",
    "hybrid_parallel.fabric_picture": "fabric_picture",
    "hybrid_parallel.layout_front": "front_words layout_front",
    "hybrid_parallel.layout_nodes": "layout_on_nodes layout_words",
    "hybrid_parallel.mesh_cube": "mesh_cube mesh_words",
    "hybrid_parallel.order_bars": "order_bars order_words",
    "hybrid_parallel.plan_bars": "best_layout plan_bars plan_words",
    "hybrid_parallel.score_picture": "score_picture score_words",
    "libraries.sent_volumes": "sent_volumes volumes_words",
    "memory.fit_bars": "fit_bars",
    "memory.held_after_steps": "held_after_steps",
    "memory.memory_front": "memory_front",
    "memory.module_map": "module_map",
    "memory.peak_over_k": "peak_over_k",
    "memory.recomputation_grid": "recomputation_grid",
    "memory.stacked_bars": "stacked_bars",
    "memory.step_memory": "peak_words step_memories step_memory",
    "mixed_precision.gradient_histograms": "gradient_histograms",
    "mixed_precision.loss_curves": "loss_curves",
    "mixed_precision.loss_scale": "loss_scale",
    "mixed_precision.number_bits": "number_bits",
    "mixed_precision.overflow_boxes": "overflow_boxes",
    "mixed_precision.rank_drift": "rank_drift",
    "mixed_precision.reduction_error": "reduction_error",
    "mixed_precision.small_updates": "small_updates",
    "parameter_server.gossip_reach": "gossip_reach reach_in",
    "parameter_server.link_bytes": "bytes_on_links link_bytes",
    "parameter_server.loss_over_time": "loss_over_time",
    "parameter_server.server_placement": "server_placement server_placement_words",
    "parameter_server.staleness_histogram": "staleness_histogram",
    "parameter_server.worker_timeline": "WorkerBusy computing_in computing_under_clock worker_timeline",
    "picture": "Picture save_svg show",
    "pipeline.bubble_memory": "bubble_memory",
    "pipeline.gantt": "draw_gantt",
    "pipeline.live_activations": "live_activations",
    "pipeline.schedule_grid": "draw_schedule",
    "production.detection_bars": "detection_bars detection_words",
    "production.goodput_curve": "goodput_curve goodput_curve_words",
    "production.job_life": "job_life life_words",
    "production.role_lanes": "role_lanes role_words",
    "production.save_stalls": "save_stalls stall_words",
    "production.straggler_shadow": "shadow_words straggler_shadow",
    "ranks.exchange": "Exchange exchange",
    "ranks.rendezvous": "StoreEvent rendezvous",
    "ranks.step_timeline": "step_timeline",
    "ranks.speedup": "speedup",
    "table": "Table rank_table",
    "tensor_parallel.activation_memory": "activation_memory",
    "tensor_parallel.bandwidth_cliff": "bandwidth_cliff",
    "tensor_parallel.layer_chain": "LayerRun",
    "tensor_parallel.layer_picture": "draw_layer layer_words",
    "tensor_parallel.layer_traffic": "layer_traffic",
    "tensor_parallel.local_block": "LocalBlock local_block",
    "tensor_parallel.local_weights": "LocalWeight local_weights",
    "tensor_parallel.module_runs": "module_runs",
    "tensor_parallel.placements": "draw_placements placement_words",
    "tensor_parallel.product_picture": "frame_size product_figure product_frames product_words",
    "tensor_parallel.weight_splits": "draw_splits split_words",
    "ranks.timeline": "timeline",
    "traffic": "bytes_per_rank",
    "zero.bytes_over_ranks": "bytes_over_ranks",
    "zero.shard_map": "shard_map shard_words",
    "zero.stage_fit": "stage_fit",
    "zero.stage_memory": "stage_memory",
    "zero.step_over_tokens": "step_over_tokens",
    "zero.traffic_by_stage": "sent_by_operation traffic_by_stage",
    "zero.unit_timeline": "UnitRun unit_timeline",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # A module and its function may share a name: once found, the function stands here, not the module.
    globals()[name] = found = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    return found
