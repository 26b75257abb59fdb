"""A run that fits and divides, to change in tests."""

import pytest

from dtlearn.planner import Axes, TrainingRun, find_model, parse_cluster


@pytest.fixture
def gpt3():
    """GPT-3 on 64 A100: tp 8 x pp 8 x dp 1, a batch of 64."""
    return TrainingRun(find_model("gpt-3"), parse_cluster("64xA100-80GB"), Axes(8, 8, 1), 64)
