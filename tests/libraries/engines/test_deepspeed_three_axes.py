"""All three axes in real DeepSpeed: one process's losses and norm, the ranks' places, and a norm without the marks."""

import importlib
import math
from dataclasses import replace

import pytest
import torch.distributed as dist

from dtlearn.libraries.comparing.requests import REQUESTS
from dtlearn.libraries.engines import deepspeed_three_axes
from dtlearn.libraries.engines.base import batches, build_model
from dtlearn.libraries.engines.deepspeed_pipeline import DeepSpeedPipeline
from dtlearn.libraries.engines.deepspeed_three_axes import DividedLink, mark_divided
from dtlearn.libraries.engines.deepspeed_tp import tensor_parallel_section
from dtlearn.libraries.engines.registry import make_engine, require_able
from dtlearn.models.gpt import next_token_loss
from dtlearn.runtime.errors import RankError
from dtlearn.runtime.run import run_ranks
from dtlearn.tensor_parallel.vocabulary.cross_entropy import vocabulary_parallel_cross_entropy
from tests.libraries.runs import EXACT, apart, losses_of, reference_losses

NAME = "deepspeed_three_axes"
ALL = REQUESTS["zero1_pipeline_tp"][1]
FOUR = replace(ALL, world_size=4)
STAGES = (["embedding", "blocks.0"], ["blocks.1", "head"])
COLUMNS = ("query.weight", "query.bias", "key.weight", "key.bias", "value.weight", "value.bias", "up.weight", "up.bias")
ROWS = ("attention.output.weight", "down.weight")
BY_VOCABULARY = ("embedding.token.weight", "head.projection.weight")


def divided_dim(name):
    """Along which dim Megatron divides a parameter; None: all ranks have it whole."""
    return 0 if name.endswith((*COLUMNS, *BY_VOCABULARY)) else 1 if name.endswith(ROWS) else None


def gradients(run):
    """The whole model's gradients in the first step, by name."""
    model = build_model(run)
    tokens, targets = next(batches(run))
    next_token_loss(model(tokens), targets).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def norm(parts):
    return math.sqrt(sum(float(part.double().square().sum()) for part in parts))


def mark_nothing(module):
    """Planted: the line that one forgets."""


def mark_everything(module):
    """Planted: as if norms, positions and biases of rows were divided, too."""
    for parameter in module.parameters():
        parameter.tensor_model_parallel = True


def on_rank(run, mark=mark_divided):
    """Losses, norms before clipping, and what this rank is and holds."""
    deepspeed_three_axes.mark_divided = mark
    engine = make_engine(NAME, run)
    losses, norms = [], []
    for batch in batches(run):
        losses.append(engine.step(*batch))
        norms.append(float(engine.engine.get_global_grad_norm()))
    grid, module, moments = engine.grid, engine.engine.module, engine.engine.optimizer.optimizer.state.values()
    return {
        "losses": losses,
        "norms": norms,
        "place": (grid.get_stage_id(), grid.get_data_parallel_rank(), grid.get_tensor_model_parallel_rank()),
        "replicas": grid.get_data_parallel_group_ranks(),
        "layer": dist.get_process_group_ranks(grid.get_slice_parallel_group()),
        "stages": dist.get_process_group_ranks(grid.get_pipe_parallel_group()),
        "groups of links": {tuple(dist.get_process_group_ranks(link.link.group)) for link in module.forward_funcs},
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "moments": sum(of_one["exp_avg"].numel() for of_one in moments),
    }


@pytest.fixture(scope="module")
def eight():
    """The run of the chapter, once: 2 x 2 x 2."""
    return run_ranks(on_rank, 8, ALL, device="cpu", timeout=300).values


@pytest.mark.libraries
@pytest.mark.filterwarnings("ignore")
def test_eight_ranks_have_the_losses_and_the_norm_of_one_process(eight):
    assert all(rank["losses"] == eight[0]["losses"] and rank["norms"] == eight[0]["norms"] for rank in eight)
    assert apart(eight[0]["losses"], reference_losses(ALL)) < EXACT
    assert eight[0]["norms"][0] == pytest.approx(norm(gradients(ALL).values()), rel=1e-6)


@pytest.mark.libraries
@pytest.mark.filterwarnings("ignore")
def test_which_ranks_are_replicas_stages_and_parts_of_a_layer(eight):
    """rank = (stage * dp + replica) * tp + place: the ranks of a layer are next to each other."""
    assert [rank["place"] for rank in eight] == [(s, r, t) for s in (0, 1) for r in (0, 1) for t in (0, 1)]
    assert [rank["layer"] for rank in eight] == [[n, n + 1] for n in (0, 0, 2, 2, 4, 4, 6, 6)]
    assert [rank["replicas"] for rank in eight] == [[n, n + 2] for n in (0, 1, 0, 1, 4, 5, 4, 5)]
    assert [rank["stages"] for rank in eight] == [[n, n + 4] for n in (0, 1, 2, 3, 0, 1, 2, 3)]
    assert all(rank["groups of links"] == {tuple(rank["layer"])} for rank in eight)


@pytest.mark.libraries
@pytest.mark.filterwarnings("ignore")
def test_a_rank_holds_its_part_of_its_stage_and_half_of_its_moments(eight):
    sizes = {name: gradient.numel() for name, gradient in gradients(ALL).items()}
    for rank in eight:
        own = [name for name in sizes if name.startswith(tuple(STAGES[rank["place"][0]]))]
        assert rank["parameters"] == sum(sizes[name] // (1 if divided_dim(name) is None else 2) for name in own)
        assert rank["moments"] == rank["parameters"] / 2  # ZeRO 1, over two replicas


CASES = {
    "clipping, recomputation, a row of padding": {
        "clipping": 0.5,
        "recompute": True,
        "config": replace(ALL.config, vocab_size=129),
    },
    "one stage": {"pp": 1, "clipping": 0.5},
    "whole layers": {"tp": 1, "clipping": 0.5},
}


@pytest.mark.libraries
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
def test_the_losses_are_those_of_one_process(case):
    run = replace(FOUR, **CASES[case])
    assert apart(run_ranks(losses_of, 4, NAME, run, device="cpu", timeout=300)[0], reference_losses(run)) < EXACT


@pytest.mark.libraries
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("mark", "shown"), [(mark_nothing, 2.97), (mark_everything, 4.26)])
def test_without_the_right_marks_the_norm_is_another(mark, shown):
    """None: the first tp rank's parts count alone. All: what both ranks have counts twice. The loss moves, too."""
    run = replace(FOUR, clipping=0.5)
    whole = gradients(run)
    if mark is mark_nothing:
        parts = {name: full.chunk(2, dim)[0] for name, full in whole.items() if (dim := divided_dim(name)) is not None}
        counted = (whole | parts).values()
    else:
        counted = [full for name, full in whole.items() for _ in range(2 if divided_dim(name) is None else 1)]
    found = run_ranks(on_rank, 4, run, mark, device="cpu", timeout=300)[0]
    assert found["norms"][0] == pytest.approx(norm(counted), rel=1e-6)
    assert (round(norm(counted), 2), round(norm(whole.values()), 2)) == (shown, 3.30)  # the notebook says so
    assert apart(found["losses"], reference_losses(run)) > 5 * EXACT


def norm_at_stage_0(run):
    """The norm that DeepSpeed clips by without ZeRO, in fp32, on a pipeline."""
    home, norms = importlib.import_module("deepspeed.runtime.engine"), []
    clip = home.clip_grad_norm_
    home.clip_grad_norm_ = lambda **given: norms.append(float(clip(**given)))
    DeepSpeedPipeline(run).step(*next(batches(run)))
    return norms[0]


@pytest.mark.libraries
@pytest.mark.filterwarnings("ignore")
def test_without_zero_deepspeed_leaves_the_later_stages_out_of_the_norm():
    """Why a pipeline is refused clipping there: `get_model_parallel_rank` of its grid counts stages as well."""
    run = replace(FOUR, tp=1, world_size=2, zero_stage=0, clipping=0.5)
    first = [full for name, full in gradients(run).items() if name.startswith(tuple(STAGES[0]))]
    found = run_ranks(norm_at_stage_0, 2, run, device="cpu", timeout=300)[0]
    assert found == pytest.approx(norm(first), rel=1e-6) and round(found, 2) == 2.41  # the notebook says so
    with pytest.raises(ValueError, match="clips in fp32 with zero_stage=1, got 0"):
        require_able("deepspeed_pipeline", run)
    require_able("deepspeed_pipeline", replace(run, zero_stage=1))
    require_able("deepspeed_pipeline", replace(run, precision="bf16"))


def autotp_on_a_pipeline(run):
    section = tensor_parallel_section(2)
    DeepSpeedPipeline(replace(run, options={"tensor_parallel": section}))


@pytest.mark.libraries
@pytest.mark.filterwarnings("ignore")
def test_autotp_takes_the_stages_of_a_pipeline_for_replicas():
    """Why the layers are ours: it sends the first stage's embedding, 128 rows, where the second has a norm."""
    run = replace(FOUR, tp=1)
    with pytest.raises(RankError, match=r"rank 0 calls broadcast with shape \(128, 256\), rank 2 with shape \(256,\)"):
        run_ranks(autotp_on_a_pipeline, 4, run, device="cpu", timeout=300)


def links_alone(run):
    """The first loss of the chain of links on all ranks, without DeepSpeed; and what is marked in the chain."""
    x, targets = next(batches(run))
    marks = {}
    for name in (*STAGES[0], *STAGES[1]):
        link = DividedLink(run, name, dist.group.WORLD)
        mark_divided(link)
        marks |= {f"{name}.{own}": p.tensor_model_parallel for own, p in link.link.named_parameters()}
        x = link(x)
    return vocabulary_parallel_cross_entropy(x, targets, num_classes=run.config.vocab_size).item(), marks


def test_the_links_are_the_model_and_what_is_divided_is_marked():
    loss, marks = run_ranks(links_alone, 2, ALL, device="cpu")[0]
    assert loss == pytest.approx(reference_losses(ALL)[0], abs=EXACT)
    assert marks == {name: divided_dim(name) is not None for name in gradients(ALL)}
    assert marks["blocks.0.attention.query.bias"] and not marks["blocks.0.attention.output.bias"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"zero_stage": 0}, "takes zero_stage=1, got 0"),
        ({"precision": "bf16"}, "takes precision='fp32', got 'bf16'"),
        ({"config": replace(ALL.config, tie_embeddings=True)}, "takes config.tie_embeddings=False, got True"),
        ({"config": replace(ALL.config, dropout=0.1)}, "takes config.dropout=0.0, got 0.1"),
    ],
)
def test_what_it_cannot_do_is_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        make_engine(NAME, replace(ALL, **changes))


def test_numbers_of_ranks_that_do_not_fit_are_refused():
    for world_size in (6, 9):
        with pytest.raises(ValueError, match=rf"tp \* pp must divide world_size, got 2 \* 2 and {world_size}"):
            replace(ALL, world_size=world_size)
    with pytest.raises(ValueError, match="global_batch must be micro-batch"):
        replace(ALL, world_size=12)
    with pytest.raises(RankError, match="world_size=8, and there are 2 ranks"):
        run_ranks(losses_of, 2, NAME, ALL, device="cpu")
