"""A learner's own run in pictures and words: lanes, waits, where ranks part; after a pass beside the model answer."""

from html import escape
from operator import itemgetter

from ...runtime.record.collectives import collectives, members, without_refused
from ...runtime.record.event import Event
from ...runtime.record.operations import peer_word
from ...runtime.record.record import Record
from ...runtime.watch.side_by_side import side_by_side
from ...runtime.words import columns
from ...viz.collectives.collective_picture import collective_figure, collective_words
from ...viz.collectives.collective_steps import collective_steps
from ...viz.picture import Picture, folded
from ...viz.ranks.timeline import timeline
from ...viz.table import Table
from ...viz.waits import CallKey, data_starts, partners
from .. import rules
from ..message_chain import longest_chain
from ..own_run import OwnRun

_PRE = "white-space: pre; overflow-x: auto; font-size: 0.85em"  # lines keep their form, in a box of their own
_MOST_ROWS, _MOST_COLUMNS = 12, 4  # of the tables of calls
_MOST_STEPS = 16  # of a collective that is drawn step by step


def title(run: OwnRun) -> str:
    return f"Your run with {run.world_size} rank{'s' * (run.world_size > 1)} ({run.case})"


def picture(run: OwnRun) -> Picture:
    """The lanes of the run: each call with its line, and what never returned."""
    record = run.record
    stuck = {event.rank for event in without_refused(record.unfinished())}
    ended = sorted(set(range(record.world_size)) - stuck) if stuck else []
    parted = parting(record)

    def name(event: Event) -> str:
        call = f"{event.op}, line {event.line}"
        return f"{call}: here the ranks part" if (event.rank, event.seq) in parted else call

    return Picture(timeline(record, title(run), names=name, ended=ended), f"{title(run)}. {waits(record)}")


def messages_picture(run: OwnRun) -> Picture | None:
    """Whose data was where after each step, if the run consists of messages that all arrived."""
    if not moves_data(run.record):
        return None
    steps = collective_steps(run.record)
    if not 0 < len(steps.messages) <= _MOST_STEPS:
        return None
    return Picture(collective_figure(steps, "Your messages, step by step"), collective_words(steps))


def moves_data(record: Record) -> bool:
    """Whether it can be played message by message."""
    return bool(record.events) and all(e.is_p2p and e.end_ns is not None for e in record) and bool(record.messages())


def calls(run: OwnRun) -> str:
    """The calls of all ranks side by side, as text; the first collective that differs is marked."""
    by_rank: dict[int, list[Event]] = {rank: [] for rank in range(run.world_size)}
    for event in run.record:
        by_rank[event.rank].append(event)
    lines = side_by_side({rank: [e for e in own if not e.is_p2p] for rank, own in by_rank.items()}, keep=_MOST_ROWS)
    return "\n".join([*lines, *_messages({rank: [e for e in own if e.is_p2p] for rank, own in by_rank.items()})])


def parting(record: Record) -> set[CallKey]:
    """The first calls of a group in which its ranks are not in the same operation, or not all are."""
    for together in collectives(record):
        first, *others = together.values()
        all_came = together.keys() >= {*members(first.group, range(record.world_size))}
        if not all_came or any(event.op != first.op for event in others):
            return {(rank, event.seq) for rank, event in together.items()}
    return set()


def waits(record: Record) -> str:
    """Who waited longest, for whom, in one sentence; or which calls never returned."""
    if stuck := without_refused(record.unfinished()):
        return " ".join(f"Rank {e.rank} is still in {e.op}, line {e.line}." for e in stuck[:4])
    starts, waited_for = data_starts(record), partners(record)
    waited = [((starts[e.rank, e.seq] or 0) - e.start_ns, e) for e in record]
    nanoseconds, event = max(waited, key=itemgetter(0), default=(0, None))
    if event is None or nanoseconds <= 0:
        return "No rank waited for another."
    last = max(waited_for[event.rank, event.seq], key=lambda partner: partner.start_ns)
    whom = f"for rank {last.rank} in {event.op}, line {event.line}"
    return f"Rank {event.rank} waited longest: {nanoseconds / 1e6:.1f} ms {whom}."


def comparison(run: OwnRun) -> Table | None:
    """The answer beside the model answer; None without one."""
    if run.model is None:
        return None
    rows = [(name, *map(str, _costs(record))) for name, record in (("yours", run.record), ("model answer", run.model))]
    columns = ("answer", "calls of the busiest rank", "bytes of the busiest rank", "messages in a row")
    return Table(f"With {run.world_size} ranks ({run.case})", columns, tuple(rows), (False, True, True, True))


def html(run: OwnRun) -> str:
    """The whole run, folded, for a notebook."""
    parts = [picture(run).img(), f"<p>{escape(waits(run.record))}</p>"]
    if table := comparison(run):
        parts.append(table._repr_html_())
    if messages := messages_picture(run):
        parts += [messages.img(), f"<p>{escape(messages.alt)}</p>"]
    parts.append(f'<pre style="{_PRE}">{escape(calls(run))}</pre>')
    return folded(f"{title(run)}, drawn from its record", "".join(parts))


def text(run: OwnRun) -> str:
    """The whole run as text, without pictures."""
    table = comparison(run)
    return "\n".join(filter(None, [f"{title(run)}:", calls(run), waits(run.record), str(table) if table else ""]))


def _messages(by_rank: dict[int, list[Event]]) -> list[str]:
    """A table of sends and receives: a column a rank, a row a call."""
    shown = [rank for rank in by_rank if by_rank[rank]][:_MOST_COLUMNS]
    most = max((len(by_rank[rank]) for rank in shown), default=0)
    if not most:
        return []
    rows = [("messages", *(f"rank {rank}" for rank in shown))]
    for number in range(min(most, _MOST_ROWS)):
        cells = (by_rank[rank][number : number + 1] for rank in shown)
        rows.append((f"#{number + 1}", *("".join(map(_message, cell)) for cell in cells)))
    lines = columns(rows)
    if len(shown) < sum(map(bool, by_rank.values())) or most > _MOST_ROWS:
        lines.append(f"  (the first {len(shown)} ranks, {min(most, _MOST_ROWS)} of {most} calls)")
    return lines


def _message(event: Event) -> str:
    peer = "any" if event.peer is None else event.peer
    waits = " (waits)" if event.end_ns is None and not event.asynchronous else ""
    return f"{event.op} {peer_word(event.op)} {peer}  {event.nbytes:,} B  line {event.line}{waits}"


def _costs(record: Record) -> tuple[str, str, str]:
    ranks = range(record.world_size)
    chain = longest_chain(record)
    most_bytes = max(rules.bytes_of(record, rank) for rank in ranks)
    return f"{max(rules.messages_of(record, r) for r in ranks)}", f"{most_bytes:,}", f"{len(chain)}" if chain else "-"
