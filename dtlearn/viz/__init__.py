"""Pure functions from records and plain data to figures and tables."""

from dtlearn.viz.rendezvous import StoreEvent, rendezvous
from dtlearn.viz.show import Picture, save_svg, show
from dtlearn.viz.speedup import speedup
from dtlearn.viz.table import Table, rank_table
from dtlearn.viz.timeline import timeline
from dtlearn.viz.traffic import bytes_per_rank

__all__ = [
    "Picture",
    "StoreEvent",
    "Table",
    "bytes_per_rank",
    "rank_table",
    "rendezvous",
    "save_svg",
    "show",
    "speedup",
    "timeline",
]
