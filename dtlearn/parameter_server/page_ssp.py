"""Bounded staleness (SSP) on a page: the gate through which a worker goes before each step."""


class Gate:
    """Lets a worker begin a step if the slowest worker is at most `bound` steps behind.

        bound 1    worker 0   | 0 | 1 | waits . . . | 2 |
                   worker 1   |         0           |         1         |

    With a bound of 0 it is a barrier after every step; a bound that nobody reaches is none.
    """

    def __init__(self, bound: int, num_workers: int) -> None:
        self.bound = bound
        self.clocks = dict.fromkeys(range(num_workers), 0)  # by worker: steps that it has pushed
        self.waiting: list[int] = []  # workers that have asked for their next step, in order

    def asks(self, worker: int) -> list[int]:
        """A worker wants to begin its next step. Returns who may: this worker, or nobody."""
        self.waiting.append(worker)
        return self.open()

    def pushed(self, worker: int) -> list[int]:
        """A worker's step has arrived. Returns who may begin now: the slowest may have moved on."""
        self.clocks[worker] += 1
        return self.open()

    def left(self, worker: int) -> list[int]:
        """A worker is done, or gone: nobody waits for it any longer. Returns who may begin."""
        del self.clocks[worker]
        return self.open()

    def open(self) -> list[int]:
        """Those that may begin, who no longer wait."""
        slowest = min(self.clocks.values(), default=0)
        begin = [w for w in self.waiting if self.clocks[w] - slowest <= self.bound]
        self.waiting = [w for w in self.waiting if w not in begin]
        return begin
