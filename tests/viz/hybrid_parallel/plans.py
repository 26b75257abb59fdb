"""Plans that several tests draw: BLOOM on its cluster, all layouts and those that fit."""

from functools import cache

from dtlearn.planner import find_model, parse_cluster, planned_layouts, search_layouts


@cache
def all_layouts():
    return planned_layouts(find_model("BLOOM 176B"), parse_cluster("384xA100-80GB"), 2048)


@cache
def best_layouts():
    return search_layouts(find_model("BLOOM 176B"), parse_cluster("384xA100-80GB"), 2048)
