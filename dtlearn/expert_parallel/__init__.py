"""Layer 4: expert parallelism. Which experts see a token, and how its rows get to their ranks and back.

For any process: `routing`, choices as data; `balance`, how even they are and what evens them out; `same_routing`, for
checkpoints; `experts` and `mixture`, the whole mixture in one process; `traffic`, what is sent and held. On the ranks:
`page_expert_dispatch` on one page; then `dispatch`, who sends what, `parallel_mixture`, the real thing, `naive`, all
tokens on all ranks, `gradients`, who averages what; and `gpt`, a GPT of such blocks.
"""

from .balance import balanced_bias, imbalance, load_balancing_loss, router_z_loss
from .experts import Experts
from .gpt import expert_gpt, mixtures, put_mixtures
from .gradients import average_gradients, counted_parameters, expert_parameters, other_parameters
from .mixture import ExpertGPTConfig, MixtureOfExperts
from .naive import GatheredMixture
from .parallel_mixture import ExpertParallelMixture
from .routing import Routing, route
from .same_routing import with_same_routing
from .traffic import MixtureCall, dispatch_calls, even_elements, gathered_calls, kept_elements, mixture_elements

__all__ = [
    "ExpertGPTConfig",
    "ExpertParallelMixture",
    "Experts",
    "GatheredMixture",
    "MixtureCall",
    "MixtureOfExperts",
    "Routing",
    "average_gradients",
    "balanced_bias",
    "counted_parameters",
    "dispatch_calls",
    "even_elements",
    "expert_gpt",
    "expert_parameters",
    "gathered_calls",
    "imbalance",
    "kept_elements",
    "load_balancing_loss",
    "mixture_elements",
    "mixtures",
    "other_parameters",
    "put_mixtures",
    "route",
    "router_z_loss",
    "with_same_routing",
]
