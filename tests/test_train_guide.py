"""docs/train.md says what is: its commands parse, its options are all of them, its messages are the program's."""

import re
import shlex

import pytest

from dtlearn.train import Options
from dtlearn.train.options import make_parser, parse
from dtlearn.train.tasks import load_task
from tests.guides import ROOT, blocks, is_said, messages, source_texts
from tests.slurm import run_batch_script

GUIDE = (ROOT / "docs" / "train.md").read_text("utf-8")
MODULE = "dtlearn.train"
SHELL = blocks(GUIDE, "bash")
COMMANDS = [line for block in SHELL for line in block.splitlines() if re.match(r"(torchrun|python) .*" + MODULE, line)]
SCRIPT = next(block for block in SHELL if "#SBATCH" in block)


def test_there_is_a_command_for_every_way_to_start():
    assert len(COMMANDS) == 5
    for part in ("python -m", "--device cpu", "--nproc-per-node gpu", "--node-rank", "--rdzv-backend c10d"):
        assert sum(part in command for command in COMMANDS) == 1, part


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_parses(command):
    from torch.distributed.run import get_args_parser

    words = shlex.split(command)
    if words[0] == "torchrun":
        launch = get_args_parser().parse_args(words[1:])
        assert launch.module and launch.training_script == MODULE
        parse(launch.training_script_args)
    else:
        assert words[1:3] == ["-m", MODULE]
        parse(words[3:])


def test_a_wrong_command_is_found():
    with pytest.raises(SystemExit):
        parse(["--bach-size", "3"])


def test_the_table_has_every_option_and_its_default():
    rows = dict(re.findall(r"^\| `--([a-z-]+)` \| (.*?) \|", GUIDE, re.M))
    actions = {a.option_strings[0][2:]: a for a in make_parser()._actions if a.dest != "help"}
    assert set(rows) == set(actions)
    for name in set(rows) - {"epochs", "batch-size", "lr", "warmup"}:
        default = actions[name].default
        number = f"{default:g}" if isinstance(default, int | float) else default
        assert rows[name].strip("`") == ("none" if default is None else "off" if default is False else number), name
    defaults = [load_task(task).defaults for task in ("digits", "text")]
    for name in ("epochs", "batch-size", "lr", "warmup"):
        assert rows[name] == ", ".join(f"{getattr(d, name.replace('-', '_')):g}" for d in defaults)


def test_the_options_of_the_command_are_those_of_run_ranks():
    assert parse([]) == Options()
    assert parse(["--task", "text", "--clip", "1", "--amp"]) == Options(task="text", clip=1.0, amp=True)


def test_each_message_is_in_the_source():
    found = messages(GUIDE)
    assert len(found) >= 11
    assert not [quote for quote in found if not is_said(quote, source_texts())]


def test_links_lead_somewhere():
    for page, anchor in re.findall(r"\]\(([^)#]*)#([^)]+)\)", GUIDE):
        text = (ROOT / "docs" / page).read_text("utf-8") if page else GUIDE
        heads = {
            re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in re.findall(r"^#+ (.*)$", text, re.M)
        }
        assert anchor in heads


def test_the_notebooks_lines_run():
    (block,) = blocks(GUIDE, "python")
    names = {}
    exec(block.replace('task="text"', 'task="text", max_steps=1'), names)
    assert names["train"].__module__ == f"{MODULE}.loop"


@pytest.mark.slow
def test_the_slurm_script_runs(tmp_path):
    """As it stands, with two tasks, and fewer steps."""
    task = 'SLURM_PROCID={0} SLURM_LOCALID={0} SLURM_NTASKS=2 SLURM_NTASKS_PER_NODE=2 "$@"'
    script = SCRIPT.replace(f"{MODULE} ", f"{MODULE} --device cpu --max-steps 3 ")
    done = run_batch_script(
        script.replace(" --log-dir runs/a", ""),  # TensorBoard takes seconds to load
        tmp_path,
        hosts="echo 127.0.0.1",
        srun=f"{task.format(0)} & first=$!\n{task.format(1)}\nsecond=$?\nwait $first && exit $second",
        env={"OMP_NUM_THREADS": "1", "SLURM_JOB_NODELIST": "n1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 ranks over gloo on cpu" in done.stdout and done.stdout.count("digits:") == 1
    assert (tmp_path / "runs" / "a" / "step-00000003.pt").exists()
