"""What a figure has drawn, read back: boxes of the lanes, and the words of the legend."""

from matplotlib.collections import PolyCollection
from matplotlib.colors import same_color


def boxes(ax, look, row):
    """(start, end) of the boxes with that look's colour in a lane, from the left."""
    found = []
    for collection in ax.collections:
        if isinstance(collection, PolyCollection) and same_color(collection.get_facecolor()[0], look.color):
            for path in collection.get_paths():
                (x0, y0), (x1, y1) = path.vertices.min(axis=0), path.vertices.max(axis=0)
                if row - 0.5 < (y0 + y1) / 2 < row + 0.5:
                    found.append((round(float(x0), 6), round(float(x1), 6)))
    return sorted(found)


def legend(fig):
    """The words of the legend."""
    return [text.get_text() for drawn in fig.legends for text in drawn.get_texts()]


def lane_names(ax):
    """The names of the lanes, from above."""
    return [text.get_text() for text in ax.get_yticklabels()]
