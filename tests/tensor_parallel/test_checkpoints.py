"""Whole checkpoints cut for ranks and back, for every pair of splits, as dicts and as files; and misplaced parts."""

import itertools

import pytest
import torch

from dtlearn.models import GPT, GPTConfig, max_difference
from dtlearn.runtime.run import run_ranks
from dtlearn.tensor_parallel.checkpoints import (
    gpt_split_dims,
    load_local_state,
    load_states,
    local_state,
    merge_states,
    reshard,
    reshard_files,
    save_state,
    split_state,
)
from dtlearn.tensor_parallel.gpt import ParallelGPT
from dtlearn.tensor_parallel.layers.parameters import split_dims
from tests.data_parallel.runs import message_of
from tests.sharing.groups import in_groups

SIZES = {"vocab_size": 13, "context_length": 12, "num_layers": 1, "num_heads": 12, "hidden_size": 24}
CONFIG, TIED = GPTConfig(**SIZES), GPTConfig(**SIZES, tie_embeddings=True)
COUNTS = (1, 2, 3, 4)


def parameters(seed=0, config=CONFIG):
    torch.manual_seed(seed)
    return {name: torch.randn_like(p) for name, p in GPT(config).named_parameters()}


def equal(one, other):
    return max_difference(one, other).value == 0.0


@pytest.mark.parametrize(("before", "after"), list(itertools.product(COUNTS, COUNTS)))
def test_cut_anew_is_cut_from_the_whole(before, after):
    whole = parameters()
    states = split_state(whole, CONFIG, before)
    assert equal(merge_states(states[::-1]), whole)  # in any order
    again, direct = reshard(states, after), split_state(whole, CONFIG, after)
    assert [state["rank"] for state in again] == list(range(after))
    for one, other in zip(again, direct, strict=True):
        assert equal(one["values"], other["values"])
        assert all(p.untyped_storage().nbytes() == p.nbytes for p in one["values"].values())


def test_through_files(tmp_path):
    whole = parameters()
    for state in split_state(whole, CONFIG, 2):
        save_state(state, tmp_path / "two")
    files = reshard_files(tmp_path / "two", tmp_path / "three", 3)
    assert [file.name for file in files] == ["rank0_of3.pt", "rank1_of3.pt", "rank2_of3.pt"]
    assert equal(merge_states(load_states(tmp_path / "three")), whole)
    gpt = GPT(CONFIG)
    gpt.load_state_dict(merge_states(load_states(tmp_path / "two")))
    assert equal(dict(gpt.named_parameters()), whole)
    with pytest.raises(ValueError, match="parts of two splits in one folder"):
        reshard_files(tmp_path / "two", tmp_path / "two", 4)
    with pytest.raises(ValueError, match="has no part of a checkpoint"):
        load_states(tmp_path)
    files[1].unlink()
    with pytest.raises(ValueError, match=r"3 ranks saved, and these are the parts of ranks \[0, 2\]"):
        load_states(tmp_path / "three")


def test_parts_that_do_not_make_a_whole():
    whole = parameters()
    two, three = split_state(whole, CONFIG, 2), split_state(whole, CONFIG, 3)
    with pytest.raises(ValueError, match="got none"):
        merge_states([])
    with pytest.raises(ValueError, match="parts of several splits: saved by 2 and by 3 ranks"):
        merge_states([two[0], three[1]])
    with pytest.raises(ValueError, match=r"2 ranks saved, and these are the parts of ranks \[0, 0\]"):
        reshard([two[0], two[0]], 1)
    with pytest.raises(ValueError, match="parts of several models"):
        merge_states([two[0], split_state(parameters(config=TIED), TIED, 2)[1]])
    with pytest.raises(ValueError, match="12 heads cannot be divided among 8 ranks"):  # 24 features can
        reshard(two, 8)
    with pytest.raises(ValueError, match="at least one rank; got 0"):
        split_state(whole, CONFIG, 0)
    with pytest.raises(ValueError, match=r"embedding\.token\.weight is \(7, 24\), not \(13, 24\)"):
        split_state(two[0]["values"], CONFIG, 2)
    with pytest.raises(ValueError, match=r"head\.projection\.weight is \(13, 24\), not missing"):
        split_state(whole, TIED, 2)


def on_ranks(folder):
    """A trained model saved by each group, and loaded again; parts of others refused."""

    def case(group):
        found, tokens = {}, torch.arange(12)[None]
        for tied in (False, True):
            config = GPTConfig(**SIZES, tie_embeddings=tied)
            model = ParallelGPT(config, seed=1, group=group)
            dims = split_dims(model)
            found["dims", tied] = {name: dims[name] for name, _ in model.named_parameters()} == gpt_split_dims(config)
            model.loss(tokens, tokens).backward()
            for parameter in model.parameters():  # an optimizer would load torch's compiler in every rank: a second
                parameter.data -= 0.5 * parameter.grad
            state = local_state(model)
            save_state(state, f"{folder}/{model.num_ranks}/{tied}")
            other = ParallelGPT(config, seed=2, group=group)
            held = list(other.parameters())
            load_local_state(other, state)
            found["loaded", tied] = equal(dict(other.named_parameters()), dict(model.named_parameters()))
            found["held", tied] = all(a is b for a, b in zip(held, other.parameters(), strict=True))
            found["whole", tied] = model.full_params()
        elsewhere = dict(state, rank=model.num_ranks)
        found["rank"] = message_of(lambda: load_local_state(other, elsewhere))
        found["split"] = message_of(lambda: load_local_state(other, split_state(parameters(), CONFIG, 6)[0]))
        larger = GPTConfig(**SIZES | {"vocab_size": 14})
        parts = split_state(parameters(config=larger), larger, model.num_ranks)
        found["model"] = message_of(
            lambda: load_local_state(ParallelGPT(CONFIG, seed=1, group=group), parts[model.rank])
        )
        return found

    return in_groups(case)


def test_what_ranks_saved_is_their_model_and_parts_of_others_are_refused(tmp_path):
    for rank, of_sizes in enumerate(run_ranks(on_ranks, 4, str(tmp_path), device="cpu")):
        for size, found in of_sizes.items():
            for tied in (False, True):
                assert found["dims", tied] and found["loaded", tied] and found["held", tied]
                saved = load_states(tmp_path / str(size) / str(tied))
                assert len(saved) == size and equal(merge_states(saved), found["whole", tied])
            mine = f"this is rank {rank} of {size}: each rank loads its own part, and reshard()"
            assert f"this is the part of rank {size} of {size}, and {mine}" in found["rank"]
            assert f"this is the part of rank 0 of 6, and {mine}" in found["split"]
            assert "another model: vocab_size is 14 there, 13 here" in found["model"]
