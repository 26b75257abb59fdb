# ch11.interleaved: edit this file, then run `dtlearn grade ch11.interleaved`.
"""Write down what one rank does in the interleaved schedule.

The model is cut into p v stages, for p ranks with v **chunks** each. Rank r holds the stages r, r + p,
r + 2p, and so on: chunk c of rank r is stage c p + r. Each stage is 1/v as large as without interleaving,
so the last rank waits only 1/v as long for its first work.

**Given** `rank`, r; `num_ranks`, p; `num_microbatches`, m; and `chunks`, v, which is 2 or more.

**Return** the list of this rank's actions, in order. An action is a tuple `(stage, op, microbatch)`; the op
is `"F"` for a forward pass and `"B"` for a backward pass.

- **Forward passes** go p micro-batches at a time: the first p through chunk 0, the same p through chunk 1,
  and so on up to chunk v - 1; then the next p through chunk 0.
- **Backward passes** go in the same groups of p micro-batches, but from chunk v - 1 down to chunk 0.
- **Warm-up**: the rank begins with 2 (p - r - 1) + (v - 1) p forward passes, or with all that it has, if
  it has fewer.
- Then come one forward pass and one backward pass in turn, as long as there are forward passes; then the
  remaining backward passes.

m must be a multiple of p; otherwise raise a `ValueError`.

**Example**: p = 2, v = 2, m = 2, so that rank 0 holds the stages 0 and 2, rank 1 the stages 1 and 3. In the
table 2F0 is the tuple `(2, "F", 0)`.

| rank | warm-up | one forward, one backward | the rest |
|---|---|---|---|
| 0 | 0F0 0F1 2F0 2F1 | | 2B0 2B1 0B0 0B1 |
| 1 | 1F0 1F1 | 3F0 3B0 3F1 3B1 | 1B0 1B1 |
"""


def interleaved(rank: int, num_ranks: int, num_microbatches: int, chunks: int) -> list[tuple[int, str, int]]:
    """Return the actions of one rank, in order."""
    raise NotImplementedError(
        "ch11.interleaved: which chunk and micro-batch has pass number i, and how many "
        "come first?"
    )
