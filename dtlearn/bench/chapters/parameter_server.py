"""`dtlearn bench parameter_server`: samples per second with servers, beside DDP and torch's rpc; messages; rows."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runtime.machine.cores import load_line
from ...runtime.words import format_seconds
from ..bench import Bench, BenchResult
from ..figures import aligned
from ..status_line import say
from .on_ranks.parameter_server_ways import (
    ASYNCHRONOUS,
    DDP,
    RPC,
    SERVER,
    STEPS,
    ServerWorkload,
    TableResult,
    TableWorkload,
    message_ratios,
    table_result,
    time_messages,
    time_on_rank,
)
from .words import if_more_than_cores, load_since, met, noisy

if TYPE_CHECKING:
    from ...models.in_turns import Times

LINK = "1 Gb/s"
WORKERS, SERVERS = (1, 2, 4), (1, 2)
WAYS = (SERVER, ASYNCHRONOUS, DDP, RPC)
MESSAGE = 16 << 20  # bytes of the pull and the push that are timed alone
TO_PLAIN, TO_RPC, STEP_BYTES = 1.15, 1.0, 1.05e6  # targets: a pull, a push; throughput; bytes of a step with a table
_TIMEOUT = 900.0

Setting = tuple[int, int]  # workers, servers


@dataclass(frozen=True)
class ParameterServerResult(BenchResult):
    """Steps and messages, measured in turns, and bytes, which are the same every time.

    Attributes:
        work: of each worker.
        parameters: of the model.
        bare, linked: {(workers, servers): {way: seconds of STEPS steps, of each round}}, without a link and on LINK.
        messages, linked_messages: how many times as long a pull and a push take as plain messages of the same bytes.
        table: the run with a sparse table.
        machine: cores and load before and after.
    """

    where: str
    work: ServerWorkload
    parameters: int
    bare: dict[Setting, Times]
    linked: dict[Setting, Times]
    messages: dict[str, float]
    linked_messages: dict[str, float]
    table: TableResult
    machine: str

    @property
    def ok(self) -> bool:
        """Bytes are sure: those of a step with a table are the formula's, few, and never the table."""
        table = self.table
        return math.isclose(table.sent, table.formula) and table.sent <= STEP_BYTES and table.largest <= STEP_BYTES

    def samples_per_second(self, times: Mapping[Setting, Times], setting: Setting, way: str) -> float:
        """Samples per second of all workers together: the median over the rounds; nan if the way was not measured."""
        seconds = times[setting].get(way)
        return STEPS * setting[0] * self.work.batch / statistics.median(seconds) if seconds else math.nan

    @property
    def to_rpc(self) -> dict[Setting, float]:
        """The synchronous server's throughput to that of torch's rpc, without a link, which rpc does not go through."""
        from ...models.in_turns import ratio

        return {s: ratio(times[RPC], times[SERVER]) for s, times in self.bare.items() if RPC in times}


def measure(
    ranks: int,
    rounds: int,
    work: ServerWorkload | None = None,
    table: TableWorkload | None = None,
    message: int = MESSAGE,
) -> ParameterServerResult:
    """Samples per second of up to `ranks` workers without and with a link, then messages alone, then the table."""
    from ...models import MLP, num_parameters
    from ...models.in_turns import slowest
    from ...runtime.link.link import Link
    from ...runtime.run import run_ranks

    work, before, link = work or ServerWorkload(), load_line(), Link.named(LINK)
    options: dict[str, Any] = {"device": "cpu", "timeout": _TIMEOUT}
    settings = [(workers, servers) for workers in WORKERS if workers <= ranks for servers in SERVERS]
    bare: dict[Setting, Times] = {}
    linked: dict[Setting, Times] = {}
    where = ""
    for emulated, times in ((None, bare), (link, linked)):
        for workers, servers in settings:
            say(f"{_name(workers, servers)}, {'on the link' if emulated else 'without a link'}")
            with tempfile.TemporaryDirectory() as folder:
                # rpc has one server, and its sockets do not go through the emulated link.
                store = str(Path(folder) / "store") if servers == 1 and not emulated else None
                arguments = work, servers, rounds, store
                run = run_ranks(time_on_rank, workers + servers, *arguments, link=emulated, **options)
            where = where or run.placement.where
            times[workers, servers] = slowest(run.values)
    say("a pull and a push")
    plain, on_link = (
        message_ratios(run_ranks(time_messages, 3, message, rounds, link=each, **options)[1]) for each in (None, link)
    )
    say("a table")
    return ParameterServerResult(
        where,
        work,
        num_parameters(MLP(work.sizes)),
        bare,
        linked,
        plain,
        on_link,
        table_result(table or TableWorkload()),
        load_since(before),
    )


def table(result: ParameterServerResult) -> str:
    """The result for people."""
    most = max(sum(setting) for setting in result.bare)
    rows = result.table
    return "\n".join(
        [
            f"{result.where}, MLP of {result.parameters:,} parameters, {result.work.batch} samples a worker and step; "
            f"plain SGD.{if_more_than_cores(most)}",
            "",
            aligned(_rate_rows("samples/s, no link", result, result.bare, WAYS)),
            "",
            aligned(_rate_rows(f"samples/s, emulated link {LINK}", result, result.linked, WAYS[:-1])),
            "",
            "DDP has no server: its ranks are the workers. rpc has one, and does not go through the emulated link.",
            f"Table: {rows.sent:,.0f} bytes a step there and back (formula: {rows.formula:,.0f}), largest message "
            f"{rows.largest:,}; a step in {format_seconds(rows.seconds)}; loss {rows.losses[0]:.3f} to "
            f"{rows.losses[1]:.3f}.",
            "",
            *_verdicts(result),
            noisy(result.machine),
        ]
    )


def values(result: ParameterServerResult) -> dict[str, Any]:
    """The result as plain values, seconds throughout."""
    return {
        "where": result.where,
        "parameters": result.parameters,
        "batch": result.work.batch,
        "machine": result.machine,
        "targets": {"to plain messages": TO_PLAIN, "to rpc": TO_RPC, "bytes of a step with a table": STEP_BYTES},
        "messages": {"no link": result.messages, LINK: result.linked_messages},
        "to rpc": {_name(*setting): ratio for setting, ratio in result.to_rpc.items()},
        "table": result.table._asdict(),
        "measured": [
            {
                "link": link,
                "workers": setting[0],
                "servers": setting[1],
                "way": way,
                "samples per second": result.samples_per_second(times, setting, way),
                "rounds": list(times[setting][way]),
            }
            for link, times in ((None, result.bare), (LINK, result.linked))
            for setting in times
            for way in times[setting]
        ],
    }


def _rate_rows(
    heading: str, result: ParameterServerResult, times: Mapping[Setting, Times], ways: tuple[str, ...]
) -> list[list[str]]:
    rows = [[heading, *ways]]
    for workers, servers in times:
        rates = [result.samples_per_second(times, (workers, servers), way) for way in ways]
        rows.append([_name(workers, servers), *("" if math.isnan(rate) else f"{rate:,.0f}" for rate in rates)])
    return rows


def _name(workers: int, servers: int) -> str:
    return f"{workers} worker{'s' * (workers > 1)}, {servers} server{'s' * (servers > 1)}"


def _verdicts(result: ParameterServerResult) -> list[str]:
    lines = []
    for where, ratios in (("no link", result.messages), (f"link {LINK}", result.linked_messages)):
        words = ", ".join(f"a {name} {found:.2f}x" for name, found in ratios.items())
        lines.append(
            f"To plain messages of the same bytes, {where}: {words}; target at most {TO_PLAIN:.2f}x: "
            f"{met(max(ratios.values()) <= TO_PLAIN)}."
        )
    rates = ", ".join(f"{_name(*setting)} {found:.2f}x" for setting, found in result.to_rpc.items())
    lines.append(
        f"Throughput to that of torch's rpc, no link: {rates}; target at least {TO_RPC:.2f}x: "
        f"{met(min(result.to_rpc.values()) >= TO_RPC)}."
    )
    return [*lines, f"Bytes of a step with a table: as the formula says, and at most 1 MB: {met(result.ok)}."]


BENCH = Bench(
    "Samples per second with parameter servers, beside torch's DDP and rpc; a pull, a push, and a sparse table.",
    "dtlearn bench parameter_server",
    "rounds",
    5,
    measure,
    table,
    values,
)
