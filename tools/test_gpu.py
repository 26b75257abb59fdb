"""All that takes a device, on this machine's GPUs, within a time limit; a page says what came of it.

    python tools/test_gpu.py                  on CUDA: what `make test-gpu` runs
    python tools/test_gpu.py --stand-in       without a GPU, as far as that goes: on the tests' stand-in
    python tools/test_gpu.py --minutes 4 --report here.md

It needs the package and pytest, and no network; the notebooks need what the extra `test` has. Of ranks that have no GPU
of their own several share one, over gloo. What the time does not reach is said to be missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = "tests/course/test_on_another_device.py"
BENCHES = ("data_parallel", "zero", "tensor_parallel", "memory", "collectives", "pipeline", "mixed_precision")
BENCH = (sys.executable, "-m", "dtlearn", "bench")
# Parts of the time: tests first, which are the most.
TESTS_SHARE, NOTEBOOKS_SHARE = 0.55, 0.25
MOST_FAILURES, FIRST_LINES = 30, 6


@dataclass
class Part:
    """What came of one part: its rows in the page, and in full what failed.

    Attributes:
        name: of its row.
        result: for a person, such as "12 passed, 1 failed".
        seconds: that it took.
        failures: each a title and the first lines of its message.
        text: what else is shown, as Markdown.
    """

    name: str
    result: str
    seconds: float = 0.0
    failures: list[tuple[str, str]] = field(default_factory=list)
    text: str = ""


def run(command: list[str], seconds: float) -> tuple[int | None, str]:
    """Exit status and output of a command; None if its time was up, and then nothing of it is left."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    options = {"cwd": ROOT, "env": environment, "start_new_session": True, "text": True}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options) as process:
        try:
            output, _ = process.communicate(timeout=max(seconds, 1))
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)  # pytest then ends its ranks, and writes what it has
            try:
                output, _ = process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
            return None, output


def pytest_part(name: str, arguments: list[str], device: str, seconds: float) -> Part:
    """Run tests on a device, and count what came of them."""
    marker = "gpu" if device == "cuda" else "stand_in"
    with tempfile.TemporaryDirectory() as scratch:
        junit, begun = Path(scratch) / "junit.xml", time.monotonic()
        options = ["-q", "--devices", device, "-m", marker, "--junitxml", str(junit), "-p", "no:cacheprovider"]
        status, output = run([sys.executable, "-m", "pytest", *arguments, *options], seconds)
        took = time.monotonic() - begun
        if not junit.is_file():
            return Part(
                name, "did not end in time" if status is None else "failed to run", took, [(name, output[-600:])]
            )
        counts, failures = counted(junit)
    late = ", and the time was up" if status is None else ""
    return Part(name, ", ".join(f"{n} {what}" for what, n in counts.items() if n) + late, took, failures)


def counted(junit: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Numbers of tests that passed, failed and were skipped, and what failed."""
    counts, failures = {"passed": 0, "failed": 0, "skipped": 0}, []
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        wrong = [found for kind in ("failure", "error") for found in case.findall(kind)]
        what = "failed" if wrong else "skipped" if case.find("skipped") is not None else "passed"
        counts[what] += 1
        if wrong:
            message = (wrong[0].get("message") or wrong[0].text or "").strip()
            failures.append((f"{case.get('classname')}::{case.get('name')}", message))
    return counts, failures


def notebooks_part(at_once: list[str], device: str, seconds: float) -> Part:
    """Run every notebook's code, if what reads notebooks is there."""
    missing = [name for name in ("jupytext", "nbformat", "nbclient") if importlib.util.find_spec(name) is None]
    if missing:
        return Part("notebooks", f"not run: {', '.join(missing)} is missing (pip install -e '.[test]')")
    return pytest_part("notebooks", [NOTEBOOKS, *at_once], device, seconds)


def benches_part(num_gpus: int, deadline: float) -> Part:
    """Run each bench in turn, while there is time; each has its own table, with its ratios."""
    from dtlearn.runtime.device import place

    begun, texts, done, failures = time.monotonic(), [], 0, []
    for number, name in enumerate(BENCHES):
        left = deadline - time.monotonic()
        if left < 10:
            texts.append(f"Not run, the time was up: {', '.join(BENCHES[number:])}.")
            break
        status, output = run([*BENCH, name, "--rounds", "3"], left)
        done += status == 0
        if status:
            failures.append((f"bench {name}", output[-1500:]))
        texts.append(
            f"`dtlearn bench {name}`{'' if status == 0 else ': not ended'}\n\n```\n{output.strip()[-3000:]}\n```"
        )
    where = f"Two ranks are on {place(2, num_gpus)}. Benches that say so stay on the CPU."
    took = time.monotonic() - begun
    return Part("benches", f"{done} of {len(BENCHES)}", took, failures, "\n\n".join([where, *texts]))


LEDGER = """
import json, torch
from dtlearn.memory import MemoryLedger, record_step
from dtlearn.models import GPT, GPTConfig, next_token_loss
torch.manual_seed(0)
model = GPT(GPTConfig(256, 128, 4, 4, 256)).cuda()
batch = torch.randint(256, (8, 129), device="cuda")
adam = torch.optim.AdamW(model.parameters())
step = (model, adam, (batch[:, :-1], batch[:, 1:]), next_token_loss)
record_step(*step)
before = torch.cuda.memory_allocated()
torch.cuda.reset_peak_memory_stats()
peak = record_step(*step).peak.bytes
torch.cuda.synchronize()
print(json.dumps({"ledger": peak, "allocator": torch.cuda.max_memory_allocated()}))
"""


def ledger_part(num_gpus: int, seconds: float) -> Part:
    """The ledger's peak of a step of a GPT beside that of CUDA's allocator."""
    if not num_gpus:
        return Part("ledger against CUDA's allocator", "not run: no GPU")
    begun = time.monotonic()
    status, output = run([sys.executable, "-c", LEDGER], seconds)
    took = time.monotonic() - begun
    if status:
        return Part("ledger against CUDA's allocator", "failed", took, [("ledger", output[-1500:])])
    found = json.loads(output.splitlines()[-1])
    ratio = found["allocator"] / found["ledger"]
    text = (
        f"Peak of a step: {found['ledger']:,} bytes counted, {found['allocator']:,} of the allocator ({ratio:.3f} x)."
    )
    return Part("ledger against CUDA's allocator", f"{ratio:.3f} x", took, text=text)


def machine(num_gpus: int) -> list[str]:
    """What the figures were measured on."""
    import torch

    lines = [f"Python {platform.python_version()}, torch {torch.__version__}, CUDA {torch.version.cuda or 'none'}"]
    lines += [f"{os.cpu_count()} processors, {platform.system()} {platform.machine()}"]
    for gpu in range(num_gpus):
        properties = torch.cuda.get_device_properties(gpu)
        lines.append(f"cuda:{gpu}: {properties.name}, {properties.total_memory / 2**30:.0f} GiB")
    return lines


def page(parts: list[Part], of_machine: list[str], device: str) -> str:
    """The report, as Markdown."""
    where = "on CUDA" if device == "cuda" else "on the stand-in: **not run on a GPU**"
    lines = [f"# What takes a device, {where}", "", *(f"- {line}" for line in of_machine), ""]
    lines += ["| part | result | seconds |", "|---|---|---|"]
    lines += [f"| {part.name} | {part.result} | {part.seconds:.0f} |" for part in parts]
    for part in parts:
        if part.text:
            lines += ["", f"## {part.name.capitalize()}", "", part.text]
    failures = [failure for part in parts for failure in part.failures]
    lines += ["", "## Failures", ""]
    for title, message in failures[:MOST_FAILURES]:
        lines += [f"`{title}`", "", "```", *message.splitlines()[:FIRST_LINES], "```", ""]
    lines += [f"... and {len(failures) - MOST_FAILURES} more"] if len(failures) > MOST_FAILURES else []
    lines += [] if failures else ["None.", ""]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--stand-in", action="store_true", help="without a GPU, on the tests' stand-in")
    parser.add_argument("--minutes", type=float, default=8, help="for all of it (default: 8)")
    parser.add_argument("--report", type=Path, default=ROOT / "gpu_report.md", help="the page (default: gpu_report.md)")
    parser.add_argument("tests", nargs="*", default=["tests"], help="pytest's paths (default: all tests)")
    options = parser.parse_args(arguments)
    import torch

    device, num_gpus = "stand_in" if options.stand_in else "cuda", torch.cuda.device_count()
    if device == "cuda" and not num_gpus:
        print("torch sees no GPU here: `dtlearn doctor` says why; --stand-in runs what goes without one")
        return 2
    seconds, begun = 60 * options.minutes, time.monotonic()
    at_once = ["-n", str(min(os.cpu_count() or 1, 4))] if importlib.util.find_spec("xdist") else []
    chosen = [*options.tests, f"--ignore={NOTEBOOKS}", *at_once, *(["--dist", "loadfile"] if at_once else [])]
    parts = [pytest_part("tests that take a device", chosen, device, TESTS_SHARE * seconds)]
    parts += [ledger_part(num_gpus, 0.1 * seconds), notebooks_part(at_once, device, NOTEBOOKS_SHARE * seconds)]
    parts += [benches_part(num_gpus, begun + seconds)]
    options.report.write_text(page(parts, machine(num_gpus), device), "utf-8")
    for part in parts:
        print(f"{part.name}: {part.result} ({part.seconds:.0f} s)")
    print(f"{options.report}, after {time.monotonic() - begun:.0f} s")
    return 1 if any(part.failures for part in parts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
