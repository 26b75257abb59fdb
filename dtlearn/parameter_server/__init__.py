"""Layer 4: parameter servers. Some ranks keep the parameters, the others train.

Begin with `page_parameter_server`, and with `page_ssp`, the gate of bounded staleness. For any process: `consistency`,
who may start a step, as rules of clocks; `progress`, which follows the clocks and keeps the log of pushes; `placement`,
who keeps what; `shard`, the parameters of one server and their optimizer, and `row_table`, a sparse table's rows, with
`scaled_step` below both. On the ranks: `ranks/`, servers, workers, the two protocols, checkpoints.
"""

from .consistency import Asynchronous, BoundedStaleness, Consistency, Synchronous, divided_by_staleness
from .placement import KeyRange, ServerPlacement, balanced, by_hash, by_range, shapes_of
from .progress import LogEntry, Push, ServerProgress, ServerUpdate
from .ranks.checkpoint import SaveEvery, load_server, save_server
from .ranks.messages import HEADER_BYTES, Channels, PeerLost, open_channels
from .ranks.mortal_ranks import Outcome, join_world, run_mortal_ranks
from .ranks.roles import ServerRoles
from .ranks.server import ParameterServer
from .ranks.training import train_pipelined, train_request_response
from .ranks.worker import Pulled, Worker
from .row_table import RowPlacement, RowTable, RowwiseAdagrad
from .shard import Shard, ShardGradient

__all__ = [
    "HEADER_BYTES",
    "Asynchronous",
    "BoundedStaleness",
    "Channels",
    "Consistency",
    "KeyRange",
    "LogEntry",
    "Outcome",
    "ParameterServer",
    "PeerLost",
    "Pulled",
    "Push",
    "RowPlacement",
    "RowTable",
    "RowwiseAdagrad",
    "SaveEvery",
    "ServerPlacement",
    "ServerProgress",
    "ServerRoles",
    "ServerUpdate",
    "Shard",
    "ShardGradient",
    "Synchronous",
    "Worker",
    "balanced",
    "by_hash",
    "by_range",
    "divided_by_staleness",
    "join_world",
    "load_server",
    "open_channels",
    "run_mortal_ranks",
    "save_server",
    "shapes_of",
    "train_pipelined",
    "train_request_response",
]
