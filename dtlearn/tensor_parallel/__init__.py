"""Layer 4: tensor parallelism. Each layer is divided over the ranks, and all of them compute it together.

For any process: `notation/`, divided arrays and their products; `arithmetic/`, bytes sent and kept, and seconds, by
formula. On the ranks: `mappings`, the conjugate operators where a divided region begins and ends; `page_linear` and
`page_cross_entropy`, the idea on a page each; `random_states`, for dropout; `sequence_parallel`, what is divided by
tokens between the divided regions, and `gradient_states`, which gradients are summed; `initial_weights`, drawn alike on
all ranks; `layers/`, linear layers and feed-forward networks; `attention/`, by heads; `vocabulary/`, the ends of a
language model; `gpt`, a whole model of them; `checkpoints`, for any number of ranks; `clipping`, by the norm of the
whole.
"""

from dtlearn.sharing.along_dim import unshard
from dtlearn.sharing.shards import shard

from .arithmetic.activations import gpt_activations, gpt_block, paper_block, table_bytes
from .arithmetic.cliff import LayerTime, layer_times
from .arithmetic.sizes import BlockSizes
from .arithmetic.traffic import Collective, block_traffic, norm_traffic, sent_elements
from .attention.attention import ParallelAttention
from .attention.fused import QKV, fuse_qkv, split_fused_qkv
from .attention.heads import Heads, divide_heads
from .checkpoints import (
    LocalState,
    gpt_split_dims,
    load_local_state,
    load_states,
    local_state,
    merge_states,
    reshard,
    reshard_files,
    save_state,
    split_state,
)
from .clipping import clip_grad_norm_, gradient_norm, naive_gradient_norm
from .gpt import ParallelGPT
from .initial_weights import shared_generator
from .layers.feed_forward import ParallelFeedForward
from .layers.gathered_products import gathered_products
from .layers.linear import ColumnParallelLinear, RowParallelLinear
from .layers.naive import OutputGatheredFeedForward, WeightGatheredFeedForward, WeightGatheredLinear
from .layers.overlap import overlapped_products
from .layers.parameters import full_params, split_dims
from .layers.swiglu import FusedColumnParallelLinear, ParallelSwiGLU, SwiGLU
from .mappings import (
    copy_to_tensor_parallel_region,
    gather_from_sequence_parallel_region,
    gather_from_tensor_parallel_region,
    reduce_from_tensor_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
    scatter_to_sequence_parallel_region,
    scatter_to_tensor_parallel_region,
)
from .notation.product_case import ProductCase, ProductStep, ProductWay, product_case
from .notation.product_steps import ProductFrame, product_steps
from .notation.sharded import Sharded, parse
from .notation.sharded_product import sharded_product
from .random_states import RandomStateTracker, checkpoint, tensor_parallel_manual_seed
from .sequence_parallel import (
    mark_sequence_parallel,
    reduce_sequence_parallel_gradients,
    reduce_sequence_parallel_pieces,
    require_reduced,
    sequence_parallel_parameters,
)
from .vocabulary.cross_entropy import vocabulary_parallel_cross_entropy
from .vocabulary.embedding import VocabularyParallelEmbedding
from .vocabulary.rows import local_rows, padded_vocabulary

__all__ = [
    "QKV",
    "BlockSizes",
    "Collective",
    "ColumnParallelLinear",
    "FusedColumnParallelLinear",
    "Heads",
    "LayerTime",
    "LocalState",
    "OutputGatheredFeedForward",
    "ParallelAttention",
    "ParallelFeedForward",
    "ParallelGPT",
    "ParallelSwiGLU",
    "ProductCase",
    "ProductFrame",
    "ProductStep",
    "ProductWay",
    "RandomStateTracker",
    "RowParallelLinear",
    "Sharded",
    "SwiGLU",
    "VocabularyParallelEmbedding",
    "WeightGatheredFeedForward",
    "WeightGatheredLinear",
    "block_traffic",
    "checkpoint",
    "clip_grad_norm_",
    "copy_to_tensor_parallel_region",
    "divide_heads",
    "full_params",
    "fuse_qkv",
    "gather_from_sequence_parallel_region",
    "gather_from_tensor_parallel_region",
    "gathered_products",
    "gpt_activations",
    "gpt_block",
    "gpt_split_dims",
    "gradient_norm",
    "layer_times",
    "load_local_state",
    "load_states",
    "local_rows",
    "local_state",
    "mark_sequence_parallel",
    "merge_states",
    "naive_gradient_norm",
    "norm_traffic",
    "overlapped_products",
    "padded_vocabulary",
    "paper_block",
    "parse",
    "product_case",
    "product_steps",
    "reduce_from_tensor_parallel_region",
    "reduce_scatter_to_sequence_parallel_region",
    "reduce_sequence_parallel_gradients",
    "reduce_sequence_parallel_pieces",
    "require_reduced",
    "reshard",
    "reshard_files",
    "save_state",
    "scatter_to_sequence_parallel_region",
    "scatter_to_tensor_parallel_region",
    "sent_elements",
    "sequence_parallel_parameters",
    "shard",
    "sharded_product",
    "shared_generator",
    "split_dims",
    "split_fused_qkv",
    "split_state",
    "table_bytes",
    "tensor_parallel_manual_seed",
    "unshard",
    "vocabulary_parallel_cross_entropy",
]
