"""What replicas divide: which memory a stage of ZeRO saves on each of them, and what is counted where."""

from dtlearn.hybrid_parallel import MeshLayout
from dtlearn.models import GPT
from tests.devices import run_ranks
from tests.hybrid_parallel.runs import LAYOUTS, batches, config, make


def kept():
    """By `zero`: elements of parameters, gradients and state on this rank after a step, before the next one."""
    found = {}
    for zero in (0, 1, 2, 3):
        model = make(LAYOUTS["tp2 dp2"], zero=zero)
        model.step(*next(batches(1)))
        (stage,) = model.stages.values()
        parameters = list(stage.runs.parameters())
        stage.optimizer.zero_grad()
        model.runner.step(*(model.own_tokens(part) for part in next(batches(1))))  # gradients, and no update
        gradients = [p.grad for p in parameters if p.grad is not None]
        gradients += [p.grad for p in stage.pieces.values() if p.grad is not None and zero == 2]
        moments = [state["exp_avg"] for state in stage.inner.state.values()]
        found[zero] = [sum(tensor.numel() for tensor in tensors) for tensors in (parameters, gradients, moments)]
    return found


def test_each_stage_of_zero_divides_one_thing_more():
    """n elements on each tp rank; with 2 replicas n / 2 of what is divided, but for odd elements."""
    result = run_ranks(kept, 4, device="cpu")
    n = result[0][0][0]
    for rank in result:
        assert rank[0] == [n, n, n]
        for zero, divided in {1: [0, 0, 1], 2: [0, 1, 1], 3: [1, 1, 1]}.items():
            for size, is_divided in zip(rank[zero], divided, strict=True):
                assert abs(size - (n / 2 if is_divided else n)) <= 6, (zero, rank[zero])


def counted():
    """Elements that count on this rank, by layout's case."""
    found = {}
    for zero in (0, 1, 3):
        model = make(LAYOUTS["tp2 dp2"], zero=zero, tied=True)
        (stage,) = model.stages.values()
        found[zero] = sum(piece.numel() for piece in stage.counted())
    return found


def test_each_element_counts_on_one_rank_of_a_copy_of_the_model():
    result = run_ranks(counted, 4, device="cpu")
    padded = config(tied=True).num_parameters + 16  # 13 tokens are 14 rows; the row of padding has no gradient
    layout = MeshLayout(tp=2, dp=2)
    assert sum(result[rank][0] for rank in layout.group(0, "tp")) == padded  # every replica has all of it
    for zero in (1, 3):
        assert sum(rank[zero] for rank in result) == padded
    assert sum(p.numel() for p in GPT(config(tied=True)).parameters()) + 16 == padded
