"""Layer 4: gradient compression and rare averaging. How little can be sent?

Begin with `page_error_feedback`: top-k with error feedback, whole. Then `codecs/`, what a gradient becomes before it
is sent, as pure functions; `residuals` and `error_feedback`, what a rank keeps because it did not send it; `hooks`, one
hook for every codec; `momentum_correction`, deep gradient compression; `powersgd`, matrices of low rank.
"""

from .codecs.casts import Cast
from .codecs.codec import Codec, Payload
from .codecs.qsgd import QSGD
from .codecs.sign import PackedSign, pack_bits, unpack_bits
from .codecs.sparse import RandomK, TopK
from .error_feedback import ErrorFeedback
from .hooks import CompressionState, compress_hook

__all__ = [
    "QSGD",
    "Cast",
    "Codec",
    "CompressionState",
    "ErrorFeedback",
    "PackedSign",
    "Payload",
    "RandomK",
    "TopK",
    "compress_hook",
    "pack_bits",
    "unpack_bits",
]
