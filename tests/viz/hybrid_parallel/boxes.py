"""Where the texts of a figure are, once it is drawn: what tests ask that labels do not lie on each other."""

from itertools import combinations

from matplotlib.backends.backend_agg import FigureCanvasAgg


def text_boxes(fig, texts):
    """The box of each text that says something, in pixels."""
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    return {text: text.get_window_extent(canvas.get_renderer()) for text in texts if text.get_text()}


def overlapping(fig, texts):
    """Pairs of texts that cover each other."""
    boxes = text_boxes(fig, texts)
    return [(a.get_text(), b.get_text()) for a, b in combinations(boxes, 2) if boxes[a].overlaps(boxes[b])]


def cut_off(fig, texts):
    """Texts that are not wholly in the figure."""
    width, height = fig.get_size_inches() * fig.dpi
    boxes = text_boxes(fig, texts)
    return [t.get_text() for t, b in boxes.items() if b.x0 < 0 or b.y0 < 0 or b.x1 > width or b.y1 > height]
