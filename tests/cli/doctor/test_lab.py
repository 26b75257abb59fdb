"""`dtlearn doctor --lab`: real nodes, on this machine and in network namespaces, that are well or have a fault."""

import contextlib
import json
import sys
from pathlib import Path

import pytest

from dtlearn.cli import main
from dtlearn.cli.doctor import group, lab
from dtlearn.cli.doctor.check import Line
from dtlearn.cli.doctor.lab import LabReport, Section
from dtlearn.runtime.lab.config import read_lab
from tests.runtime.hosts import hosts, write_lab  # noqa: F401 - a fixture

NODE_CHECKS = ["joined", "software", "interface", "host name", "cores", "memory", "shared memory", "GPUs", "clock"]
GROUP_CHECKS = ["reach each other", "ranks", "builds", "all-reduce"]


@pytest.fixture(autouse=True)
def find_dtlearn(monkeypatch):
    """Nodes import the same dtlearn as this process."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[3]))


def local_lab(folder: Path, **pythons: str) -> Path:
    """A lab.toml of nodes on this machine: {name: interpreter, "" for this one}."""
    text = '[head]\naddress = "127.0.0.1"\nport = "47900-47990"\nwait = 300\n'
    for name, python in pythons.items():
        text += f'[[node]]\nhost = "{name}"\nslots = 1\nstart = "local"\n' + (
            f'python = "{python}"\n' if python else ""
        )
    (folder / "lab.toml").write_text(text)
    return folder / "lab.toml"


def python_that_begins(folder: Path, with_this: str) -> str:
    """An interpreter that first runs some code."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(with_this)
    (folder / "python").write_text(f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    (folder / "python").chmod(0o755)
    return str(folder / "python")


def checks(section: dict) -> dict[str, dict]:
    return {check["name"]: check for check in section["checks"]}


def examine(path: Path, capsys) -> tuple[int, dict]:
    """The exit code, and the report as JSON."""
    code = main(["doctor", "--lab", str(path), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_two_nodes_that_are_well(tmp_path, capsys):
    code, report = examine(local_lab(tmp_path, one="", two=""), capsys)
    titles = [section["title"] for section in report["sections"]]
    assert titles == ["head", "one (rank 0)", "two (rank 1)", "all nodes"]
    assert (code, report["ok"]) == (0, True)
    for section in report["sections"][1:3]:
        assert list(checks(section)) == NODE_CHECKS
    assert list(checks(report["sections"][3])) == GROUP_CHECKS
    assert "1 MB over 2 ranks in" in checks(report["sections"][3])["all-reduce"]["found"]
    everything = [c["found"] for section in report["sections"] for c in section["checks"]]
    assert not [found for found in everything if "could not be checked" in found]


def test_nodes_that_do_not_come_are_named_and_the_others_examined(tmp_path, capsys):
    """One command ends at once, one machine has another torch, one a torch that cannot be loaded, one is well."""
    other = "import importlib.metadata as m\nm.version = {'torch': '2.0.0'}.get\n"
    broken = "import sys\nsys.modules['torch'] = None\n"
    pythons = {"old": python_that_begins(tmp_path / "old", other), "ill": python_that_begins(tmp_path / "ill", broken)}
    code, report = examine(local_lab(tmp_path, well="", off="/bin/false", **pythons), capsys)
    assert (code, report["ok"]) == (1, False)
    _, well, off, old, ill, together = map(checks, report["sections"])
    assert list(well) == NODE_CHECKS
    assert "host old has torch 2.0.0, the head" in old["joined"]["found"]
    assert "install the same version of torch" in old["joined"]["found"]
    found = ill["joined"]["found"]  # it ends before it is greeted, or soon after
    gone = "host ill (rank 3) is gone: the helper process that starts ranks ended" in found
    assert gone or (found.startswith("host ill did not join") and "No module named 'torch" in found), found
    assert off["joined"]["found"].startswith("host off did not join: `/bin/false` ended with code 1")
    assert "dtlearn node --join" in off["joined"]["advice"]
    assert together["all-reduce"]["found"] == "not tried: 1 of 4 nodes are here"


def fail_on_one_rank(size):
    import torch.distributed as dist

    if dist.get_rank() == 1:
        raise ValueError("planted")
    dist.barrier()


def test_ranks_that_fail_in_the_all_reduce_are_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(group, "time_all_reduce", fail_on_one_rank)
    code, report = examine(local_lab(tmp_path, one="", two=""), capsys)
    found = checks(report["sections"][3])
    assert code == 1 and found["ranks"]["state"] == "ok"
    assert found["all-reduce"]["state"] == "problem" and "rank 1" in found["all-reduce"]["found"]


def test_an_address_of_another_machine_is_told(tmp_path, capsys):
    path = local_lab(tmp_path, one="")
    path.write_text(path.read_text().replace("127.0.0.1", "192.0.2.1"))
    code, report = examine(path, capsys)
    ((found,),) = [section["checks"] for section in report["sections"]]
    assert code == 1 and found["found"].startswith("cannot listen on 192.0.2.1")


def test_a_wrong_file_is_wrong_usage(tmp_path, capsys):
    assert main(["doctor", "--lab", str(tmp_path / "none.toml")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_how_it_looks():
    bad = Line("joined", "problem", "host beta did not join", "Start it.")
    report = LabReport(
        "lab.toml: 2 nodes", (Section("head", (Line("listens", "ok", "here"),)), Section("beta", (bad,))), 1
    )
    assert lab.format_report(report).splitlines() == [
        "lab.toml: 2 nodes",
        "",
        "head",
        "ok      listens           here",
        "",
        "beta",
        "PROBLEM joined            host beta did not join",
        "                          -> Start it.",
        "",
        "Checked in 1.0 s. To fix: beta: joined (-> above says how).",
    ]
    assert lab.format_report(LabReport("x", (), 1)).endswith("Nothing to fix.")


def test_two_hosts_that_are_well(hosts, tmp_path):  # noqa: F811
    said = []
    report = lab.examine(read_lab(write_lab(tmp_path, hosts)), said.append)
    assert not report.problems, report.problems
    _, alpha, beta, together = report.sections
    assert (alpha.title, beta.title) == ("alpha (ranks 0 and 1)", "beta (ranks 2 and 3)")
    for name, section in (("alpha", alpha), ("beta", beta)):
        found = {c.name: c.found for c in section.checks}
        assert found["interface"] == f"eth0, {hosts.address(name)}: ranks talk over it"
        assert found["host name"].split()[0] == name or "looking up" in found["host name"]
    assert "1 MB over 4 ranks" in together.checks[-1].found


def test_hosts_that_cannot_reach_each_other(hosts, tmp_path):  # noqa: F811
    with hosts.no_way("beta", "alpha"):
        report = lab.examine(read_lab(write_lab(tmp_path, hosts, slots=1)), lambda text: None)
    assert report.problems == ["all nodes: reach each other"]
    mesh, tried = report.sections[-1].checks
    a, b = hosts.address("alpha"), hosts.address("beta")
    assert f"beta ({b}, eth0) -> alpha ({a}): " in mesh.found and "every TCP port" in mesh.advice
    assert tried.found == "not tried: it would hang"


def test_nothing_of_it_stays(hosts):  # noqa: F811
    """Runs last: no node of the tests above lives."""
    lines = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended, or is somebody else's
            lines.append(process.read_bytes())
    assert not [line for line in lines if b"dtlearn\0node\0" in line and hosts.head.encode() in line]
