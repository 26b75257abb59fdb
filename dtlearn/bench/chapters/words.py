"""Words that the benches of chapters share: of the machine beside their figures, and of targets."""

from ...runtime.machine.cores import load_line, num_cores


def load_since(before: str) -> str:
    """Cores and load, from before a measurement (`load_line()`) and from now."""
    return f"{before}, afterwards {load_line().split(', ')[-1]}"


def if_more_than_cores(ranks: int) -> str:
    """A sentence where there are more ranks than cores; else ""."""
    return " More ranks than cores: they take turns." if ranks > num_cores() else ""


def noisy(machine: str) -> str:
    """The last line below measured steps."""
    return f"{machine}; timings are noisy: quote the ratios, which compare neighbours."


def met(is_met: bool) -> str:
    """What became of a target."""
    return "met" if is_met else "missed"
