import pytest
from matplotlib.patches import Rectangle

from dtlearn.runtime.record.record import merge
from dtlearn.sharing.gradient_buckets import plan_buckets
from dtlearn.viz.data_parallel.ddp_picture import ddp_picture
from tests.viz.data_parallel.test_bucket_timeline import OURS, SPANS, ours

NAMES = ["layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias"]
SIZES = [4_000_000, 1000, 2_000_000, 1000]
PLAN = plan_buckets(SIZES, cap=2_000_000, first_cap=None)


def test_layers_buckets_and_the_link():
    fig = ddp_picture(ours(), PLAN, NAMES, SIZES, "From model to link")
    ax = fig.axes[0]
    words = [t.get_text() for t in ax.texts]
    assert ["layers.2  2 MB", "layers.0  4 MB", "bucket 0\n2 MB", "bucket 1\n4 MB"] == [w for w in words if "MB" in w]
    assert "exposed:\n20 ms" in words
    # Backward began at 20 ms and computed until 65; on the link 35 to 50 and 50 to 85, of 65 ms in all.
    link = [p for p in ax.patches if isinstance(p, Rectangle) and p.get_x() == pytest.approx(8.3)]
    assert [(round(p.get_y(), 1), round(p.get_y() + p.get_height(), 1)) for p in link] == [(0.2, 0.5), (0.5, 1.0)]
    assert ax.get_title(loc="left") == "From model to link"


def test_a_step_with_other_calls_is_refused():
    fewer = merge(2, [calls[:1] for calls in OURS], "", SPANS)
    with pytest.raises(ValueError, match="a step with 2 all-reduces"):
        ddp_picture(fewer, PLAN, NAMES, SIZES, "t")
    with pytest.raises(ValueError, match="a step with 2"):
        ddp_picture(merge(1, [[]]), PLAN, NAMES, SIZES, "t")
