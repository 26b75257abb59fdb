"""All layouts of a model on a cluster, and what is said if there is none.

In this order: `candidates`, what is asked for and all that divides; `refusals`, why nothing does or fits, and what
would help; `layouts`, the search.
"""

from .candidates import Constraints
from .layouts import UNFUSED, LayoutPlan, planned_layouts, search_layouts
from .refusals import describe

__all__ = ["UNFUSED", "Constraints", "LayoutPlan", "describe", "planned_layouts", "search_layouts"]
