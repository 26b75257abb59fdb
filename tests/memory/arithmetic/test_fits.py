"""The estimate beside the ledger of a real step, and beside what is known to fit."""

import pytest
import torch

from dtlearn.memory import StorageLedger
from dtlearn.memory.arithmetic.fits import largest_batch, scores_bytes, what_fits
from dtlearn.memory.arithmetic.published import GPUS, MODELS, sizes_of
from dtlearn.memory.recomputation.checkpoint import checkpoint
from dtlearn.models import GPT, GPTConfig, next_token_loss

H100 = GPUS["H100 80GB"]


def measured_peak(config, batch, recomputation):
    """Bytes at the peak of the second step of our GPT with Adam, all of them: model and optimizer, too."""
    tokens = torch.randint(config.vocab_size, (2, batch, config.context_length))
    with StorageLedger() as ledger:
        model = GPT(config)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(2):
            ledger.peak = ledger.now
            x = model.embedding(tokens[0])
            for block in model.blocks:
                x = checkpoint(block, x) if recomputation == "full" else block(x)
            loss = next_token_loss(model.head(x), tokens[1])
            del x
            loss.backward()
            optimizer.step()
            del loss
            optimizer.zero_grad(set_to_none=False)
    return ledger.peak


@pytest.mark.parametrize("recomputation", ["none", "full"])
@pytest.mark.parametrize(
    ("config", "batch"),
    [(GPTConfig(128, 64, 4, 4, 64), 8), (GPTConfig(512, 64, 2, 2, 32), 4), (GPTConfig(64, 32, 6, 4, 128), 2)],
    ids=["activations", "logits", "parameters"],
)
def test_it_is_within_four_percent_of_a_real_step(config, batch, recomputation):
    estimate = what_fits(sizes_of(config), H100, batch, "fp32 Adam", recomputation).total
    assert estimate == pytest.approx(measured_peak(config, batch, recomputation), rel=0.04)


def test_what_is_known_to_fit_and_not_to_fit():
    """ZeRO's paper: without ZeRO 32 GB run out above 1.4 billion parameters. Nobody trains 8 billion on one GPU."""
    v100 = GPUS["V100 32GB"]
    assert what_fits(MODELS["GPT-2 1.5B"], v100, 1, recomputation="full").fits
    assert not what_fits(MODELS["GPT-2 1.5B"], v100, 4).fits
    assert not what_fits(MODELS["Llama 3 8B"], H100, 1, recomputation="full").fits
    assert what_fits(MODELS["Llama 3 8B"], H100, 1, recomputation="full", zero_stage=3, num_gpus=8).fits
    assert not what_fits(MODELS["GPT-3 175B"], GPUS["B200"], 1, recomputation="full").fits


def test_recomputation_and_zero_each_save_their_rows():
    model = MODELS["GPT-2 1.5B"]
    none, selective, full = (what_fits(model, H100, 4, recomputation=r) for r in ("none", "selective", "full"))
    assert none.rows["activations"] > 3 * selective.rows["activations"] > 9 * full.rows["activations"]
    assert {fit.rows["optimizer state"] for fit in (none, selective, full)} == {12 * model.num_parameters}
    sharded = what_fits(model, H100, 4, zero_stage=1, num_gpus=4)
    assert sharded.rows["optimizer state"] == 3 * model.num_parameters
    assert sharded.rows["activations"] == none.rows["activations"]  # ZeRO does not divide them


def test_fused_attention_has_no_scores_to_compute_again():
    model = MODELS["Llama 3 8B"]
    assert what_fits(model, H100, 1).rows == what_fits(model, H100, 1, recomputation="selective").rows
    assert scores_bytes(()) == 0


@pytest.mark.parametrize("recomputation", ["none", "full"])
def test_the_largest_batch_is_the_largest(recomputation):
    model = MODELS["GPT-2 355M"]
    batch = largest_batch(model, H100, recomputation=recomputation)
    assert batch > 1
    assert what_fits(model, H100, batch, recomputation=recomputation).fits
    assert not what_fits(model, H100, batch + 1, recomputation=recomputation).fits
    assert largest_batch(MODELS["GPT-3 175B"], H100) == 0


def test_twice_the_sequence_is_more_than_twice_the_activations_where_scores_are_kept():
    short, long = (what_fits(MODELS["GPT-2 124M"], H100, 1, length=n).rows["activations"] for n in (512, 1024))
    assert long > 2.5 * short
    short, long = (what_fits(MODELS["Llama 3 8B"], H100, 1, length=n).rows["activations"] for n in (512, 1024))
    assert long == 2 * short


def test_bad_input():
    with pytest.raises(ValueError, match="recomputation must be one of none, selective, full; got 'all'"):
        what_fits(MODELS["GPT-2 124M"], H100, 1, recomputation="all")
    with pytest.raises(ValueError, match="batch must be 1 or more, got 0"):
        what_fits(MODELS["GPT-2 124M"], H100, 0)
    with pytest.raises(ValueError, match="is none of the conventions"):
        what_fits(MODELS["GPT-2 124M"], H100, 1, "fp16")
