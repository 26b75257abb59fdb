"""How soon each fault of the table is named, and whether the watch ever names one that is not there. Run by hand:

    python -m tests.runtime.measure_faults [--repeats 200] [--load] [--skip-faults]

Part one runs every fault on each of its numbers of ranks, with `run_ranks` and in a cell, and prints its code and the
seconds until the diagnosis: from the moment at which the last rank that logged a call did so, and from the start of
the run. Part two repeats programs that are right, and counts every error as a false alarm. `--load` adds two processes
that keep the machine busy meanwhile; they end with this one.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections import Counter

from dtlearn.runtime.errors import RankError, RanksTimeout
from dtlearn.runtime.output import Sink
from dtlearn.runtime.run import run_ranks
from dtlearn.runtime.world.world import World
from tests.runtime.fault_corpus import FAULTS, run_program, show_source
from tests.runtime.right import RIGHT

_MOST_SECONDS = 360.0  # of part two


def busy_process() -> subprocess.Popen:
    """One that computes until its standard input closes, that is, until this process ends."""
    code = (
        "import os, threading\n"
        "threading.Thread(target=lambda: (os.read(0, 1), os._exit(0)), daemon=True).start()\n"
        "while True: pass"
    )
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)


def seconds_to_error(run) -> tuple[BaseException | None, float, float]:
    """The error, the seconds from the last call that a rank logged, and those from the start."""
    begun = time.monotonic()
    try:
        run()
    except (RankError, RanksTimeout) as error:
        ended = time.monotonic()
        starts = [event.start_ns / 1e9 for calls in error.last_calls.values() for event in calls]
        return error, ended - max([begun, *starts]), ended - begun
    return None, 0.0, time.monotonic() - begun


def measure_faults() -> None:
    """Print a row for each fault, number of ranks and mode; then the medians."""
    run_ranks(int, 1)  # the agent is loaded
    worlds = {size: World(size) for size in (2, 4)}
    found: dict[str, list[float]] = {}
    wrong = 0
    print(f"{'fault':66} ranks  mode   code                since the last call   since the start")
    for fault in FAULTS:
        for size in fault.sizes:
            for mode in ("run", "cell"):

                def once(fault=fault, size=size, mode=mode):
                    if mode == "run":
                        show_source(fault.program)
                        run_ranks(run_program, size, fault.program, timeout=fault.limit)
                    else:
                        worlds[size].execute(fault.program, timeout=fault.limit, sink=Sink())

                error, since_call, since_start = seconds_to_error(once)
                code = getattr(error, "code", "no error")
                wrong += code != fault.code
                # What only a time limit ends is told when the limit has passed.
                since_call -= fault.limit if fault.limit < 10 else 0.0
                found.setdefault(mode, []).append(since_call)
                mark = "" if code == fault.code else f"   WRONG: {fault.code} expected"
                print(f"{fault.name:66} {size:5}  {mode:5}  {code:18} {since_call:15.2f} s {since_start:15.2f} s{mark}")
    for world in worlds.values():
        world.stop()
    for mode, seconds in found.items():
        print(f"{mode}: median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s, {len(seconds)} faults")
    print(f"{wrong} with another code than expected")


def measure_false_alarms(repeats: int) -> None:
    """Run right programs again and again, and print how many errors came."""
    begun, runs, alarms = time.monotonic(), Counter(), Counter()
    worlds = {size: World(size) for size in (2, 4)}
    for repeat in range(repeats):
        for number, (name, program) in enumerate(RIGHT.items()):
            size = (2, 4)[(repeat + number) % 2]
            for mode in ("run", "cell"):
                if time.monotonic() - begun > _MOST_SECONDS:
                    break
                runs[name] += 1
                try:
                    if mode == "run":
                        run_ranks(run_program, size, program, timeout=60)
                    else:
                        worlds[size].execute(program, timeout=60, sink=Sink())
                except (RankError, RanksTimeout) as error:
                    alarms[name] += 1
                    print(f"FALSE ALARM: {name}, {size} ranks, {mode}: {error.code}\n{error}\n")
    for world in worlds.values():
        world.stop()
    for name, count in runs.items():
        print(f"{name:40} {count:5} runs  {alarms[name]:3} false alarms")
    print(f"{runs.total()} runs in {time.monotonic() - begun:.0f} s, {alarms.total()} false alarms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--load", action="store_true")
    parser.add_argument("--skip-faults", action="store_true")
    args = parser.parse_args()
    busy = [busy_process() for _ in range(2)] if args.load else []
    try:
        if not args.skip_faults:
            measure_faults()
        measure_false_alarms(args.repeats)
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
