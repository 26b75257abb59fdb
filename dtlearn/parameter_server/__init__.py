"""Layer 4: parameter servers. Some ranks keep the parameters, the others train.

Begin with `page_parameter_server`, and with `page_ssp`, the gate of bounded staleness. For any process: `consistency`,
who may start a step, as rules of clocks; `progress`, which follows the clocks and keeps the log of pushes; `placement`,
who keeps what; `shard`, the parameters of one server and their optimizer, and `row_table`, a sparse table's rows, with
`scaled_step` below both. On the ranks: `ranks/`, servers, workers, the two protocols, checkpoints. Beside them:
`virtual_clock/`, the same rules without processes, and the replay of a real run's log; `traffic`, bytes by formula;
`gossip/`, training without a server; and, not imported here, `rpc_server`, the same server in torch's rpc.
"""

from .consistency import Asynchronous, BoundedStaleness, Consistency, Synchronous, divided_by_staleness
from .gossip.averaging import Gossip, consensus_distance
from .gossip.mixing import Mixing, complete, exponential, metropolis, ring, spectral_gap, torus, validate_mixing
from .placement import KeyRange, ServerPlacement, balanced, by_hash, by_range, shapes_of
from .progress import LogEntry, Push, ServerProgress, ServerUpdate
from .ranks.checkpoint import SaveEvery, load_server, save_server
from .ranks.messages import HEADER_BYTES, Channels, PeerLost, open_channels
from .ranks.mortal_ranks import EndOfRank, join_world, run_mortal_ranks
from .ranks.roles import ServerRoles
from .ranks.server import ParameterServer
from .ranks.training import train_pipelined, train_request_response
from .ranks.worker import Pulled, Worker
from .row_table import RowPlacement, RowTable, RowwiseAdagrad
from .shard import Shard, ShardGradient
from .traffic import RankTraffic, gossip_traffic, hot_link, least_seconds, ring_traffic, server_traffic
from .virtual_clock.compute import Computed, computing
from .virtual_clock.replay import replay
from .virtual_clock.simulate import SimulatedRun, Stretch, Version, simulate
from .virtual_clock.timing import Timing, jittered

__all__ = [
    "HEADER_BYTES",
    "Asynchronous",
    "BoundedStaleness",
    "Channels",
    "Computed",
    "Consistency",
    "EndOfRank",
    "Gossip",
    "KeyRange",
    "LogEntry",
    "Mixing",
    "ParameterServer",
    "PeerLost",
    "Pulled",
    "Push",
    "RankTraffic",
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
    "SimulatedRun",
    "Stretch",
    "Synchronous",
    "Timing",
    "Version",
    "Worker",
    "balanced",
    "by_hash",
    "by_range",
    "complete",
    "computing",
    "consensus_distance",
    "divided_by_staleness",
    "exponential",
    "gossip_traffic",
    "hot_link",
    "jittered",
    "join_world",
    "least_seconds",
    "load_server",
    "metropolis",
    "open_channels",
    "replay",
    "ring",
    "ring_traffic",
    "run_mortal_ranks",
    "save_server",
    "server_traffic",
    "shapes_of",
    "simulate",
    "spectral_gap",
    "torus",
    "train_pipelined",
    "train_request_response",
    "validate_mixing",
]
