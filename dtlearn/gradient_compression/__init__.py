"""Layer 4: gradient compression and rare averaging. How little can be sent?

Begin with `page_error_feedback`: top-k with error feedback, whole. Then `codecs/`, what a gradient becomes before it
is sent, as pure functions; `residuals` and `error_feedback`, what a rank keeps because it did not send it; `hooks`, one
hook for every codec; `momentum_correction`, deep gradient compression; `powersgd`, matrices of low rank.
Then what is no hook: `compressed_all_reduce` and `onebit_adam`; `page_diloco`, and `averaging/`, ranks that step alone
and meet rarely. `own_values` notices ranks that are averaged twice.
Last, what is used by its path: `traffic`, the bytes of each method by formula; `break_even`, on which links a codec
pays; `comparing/`, methods beside each other on ranks.
"""

from .averaging.diloco import DiLoCo, OuterOptimizer, outer_nesterov
from .averaging.local_steps import LocalSteps
from .averaging.mean import average_buffers, average_tensors, averaged
from .averaging.periodic import PeriodicAveraging
from .averaging.post_local import PostLocalSGD, post_local_hook
from .averaging.streaming import StreamingDiLoCo, strided_fragments
from .codecs.casts import CastCodec
from .codecs.codec import Codec, Payload
from .codecs.qsgd import QSGD
from .codecs.sign import PackedSign, pack_bits, unpack_bits
from .codecs.sparse import RandomK, TopK
from .compressed_all_reduce import CompressedAllReduce
from .error_feedback import ErrorFeedback
from .hooks import CompressionState, compress_hook
from .momentum_correction import MomentumCorrection, warm_up_sparsity
from .onebit_adam import OneBitAdam
from .powersgd.hook import powersgd_hook
from .powersgd.state import PowerSGDState

__all__ = [
    "QSGD",
    "CastCodec",
    "Codec",
    "CompressedAllReduce",
    "CompressionState",
    "DiLoCo",
    "ErrorFeedback",
    "LocalSteps",
    "MomentumCorrection",
    "OneBitAdam",
    "OuterOptimizer",
    "PackedSign",
    "Payload",
    "PeriodicAveraging",
    "PostLocalSGD",
    "PowerSGDState",
    "RandomK",
    "StreamingDiLoCo",
    "TopK",
    "average_buffers",
    "average_tensors",
    "averaged",
    "compress_hook",
    "outer_nesterov",
    "pack_bits",
    "post_local_hook",
    "powersgd_hook",
    "strided_fragments",
    "unpack_bits",
    "warm_up_sparsity",
]
