"""Pure functions from records and plain data to figures and tables."""

from dtlearn.viz.collective_picture import collective_figure, collective_words
from dtlearn.viz.collective_steps import collective_steps
from dtlearn.viz.cost_curves import Curve, cost_bars, cost_curves, fit_words
from dtlearn.viz.data_parallel.bucket_timeline import bucket_timeline
from dtlearn.viz.data_parallel.ddp_picture import ddp_picture
from dtlearn.viz.data_parallel.sample_grid import sample_grid, sample_words
from dtlearn.viz.data_parallel.scaling import scaling
from dtlearn.viz.memory.fit_bars import fit_bars
from dtlearn.viz.memory.held_after_steps import held_after_steps
from dtlearn.viz.memory.memory_front import memory_front
from dtlearn.viz.memory.module_map import module_map
from dtlearn.viz.memory.peak_over_k import peak_over_k
from dtlearn.viz.memory.recomputation_grid import recomputation_grid
from dtlearn.viz.memory.stacked_bars import stacked_bars
from dtlearn.viz.memory.step_memory import peak_words, step_memories, step_memory
from dtlearn.viz.mixed_precision.gradient_histograms import gradient_histograms
from dtlearn.viz.mixed_precision.loss_curves import loss_curves
from dtlearn.viz.mixed_precision.loss_scale import loss_scale
from dtlearn.viz.mixed_precision.number_bits import number_bits
from dtlearn.viz.mixed_precision.rank_drift import rank_drift
from dtlearn.viz.mixed_precision.reduction_error import reduction_error
from dtlearn.viz.mixed_precision.small_updates import small_updates
from dtlearn.viz.picture import Picture, save_svg, show
from dtlearn.viz.pipeline.bubble_memory import bubble_memory
from dtlearn.viz.pipeline.gantt import draw_gantt
from dtlearn.viz.pipeline.live_activations import live_activations
from dtlearn.viz.pipeline.schedule_grid import draw_schedule
from dtlearn.viz.ranks.exchange import Exchange, exchange
from dtlearn.viz.ranks.rendezvous import StoreEvent, rendezvous
from dtlearn.viz.ranks.step_timeline import step_timeline
from dtlearn.viz.speedup import speedup
from dtlearn.viz.table import Table, rank_table
from dtlearn.viz.tensor_parallel.activation_memory import activation_memory
from dtlearn.viz.tensor_parallel.bandwidth_cliff import bandwidth_cliff
from dtlearn.viz.tensor_parallel.layer_chain import LayerRun
from dtlearn.viz.tensor_parallel.layer_picture import draw_layer, layer_words
from dtlearn.viz.tensor_parallel.layer_traffic import layer_traffic
from dtlearn.viz.tensor_parallel.local_block import LocalBlock, local_block
from dtlearn.viz.tensor_parallel.local_weights import LocalWeight, local_weights
from dtlearn.viz.tensor_parallel.module_runs import module_runs
from dtlearn.viz.tensor_parallel.placements import draw_placements, placement_words
from dtlearn.viz.tensor_parallel.product_picture import frame_size, product_figure, product_frames, product_words
from dtlearn.viz.tensor_parallel.weight_splits import draw_splits, split_words
from dtlearn.viz.timeline import timeline
from dtlearn.viz.traffic import bytes_per_rank
from dtlearn.viz.zero.bytes_over_ranks import bytes_over_ranks
from dtlearn.viz.zero.shard_map import shard_map, shard_words
from dtlearn.viz.zero.stage_fit import stage_fit
from dtlearn.viz.zero.stage_memory import stage_memory
from dtlearn.viz.zero.traffic_by_stage import sent_by_operation, traffic_by_stage
from dtlearn.viz.zero.unit_timeline import UnitRun, unit_timeline

__all__ = [
    "Curve",
    "Exchange",
    "LayerRun",
    "LocalBlock",
    "LocalWeight",
    "Picture",
    "StoreEvent",
    "Table",
    "UnitRun",
    "activation_memory",
    "bandwidth_cliff",
    "bubble_memory",
    "bucket_timeline",
    "bytes_over_ranks",
    "bytes_per_rank",
    "collective_figure",
    "collective_steps",
    "collective_words",
    "cost_bars",
    "cost_curves",
    "ddp_picture",
    "draw_gantt",
    "draw_layer",
    "draw_placements",
    "draw_schedule",
    "draw_splits",
    "exchange",
    "fit_bars",
    "fit_words",
    "frame_size",
    "gradient_histograms",
    "held_after_steps",
    "layer_traffic",
    "layer_words",
    "live_activations",
    "local_block",
    "local_weights",
    "loss_curves",
    "loss_scale",
    "memory_front",
    "module_map",
    "module_runs",
    "number_bits",
    "peak_over_k",
    "peak_words",
    "placement_words",
    "product_figure",
    "product_frames",
    "product_words",
    "rank_drift",
    "rank_table",
    "recomputation_grid",
    "reduction_error",
    "rendezvous",
    "sample_grid",
    "sample_words",
    "save_svg",
    "scaling",
    "sent_by_operation",
    "shard_map",
    "shard_words",
    "show",
    "small_updates",
    "speedup",
    "split_words",
    "stacked_bars",
    "stage_fit",
    "stage_memory",
    "step_memories",
    "step_memory",
    "step_timeline",
    "timeline",
    "traffic_by_stage",
    "unit_timeline",
]
