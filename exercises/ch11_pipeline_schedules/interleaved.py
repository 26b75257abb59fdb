# ch11.interleaved: edit this file, then run `dtlearn grade ch11.interleaved`.
"""Write down what one rank does in the interleaved schedule.

The model is cut into p v stages, for p ranks with v **chunks** each. Rank r holds the stages r, r + p,
r + 2p, and so on: chunk c of rank r is stage c p + r. Each stage is 1/v as large as without interleaving,
so the last rank waits only 1/v as long for its first work.

**Given** `rank`, r; `num_ranks`, p; `num_microbatches`, m; and `chunks`, v, which is 2 or more.

**Return** the list of this rank's actions, in order. An action is a tuple `(stage, op, microbatch)`; the op
is `"F"` for a forward pass and `"B"` for a backward pass. The order follows from four rules:

- **Forward passes.** Let all passes take equally long, and messages no time. A rank that could go on with several
  micro-batches takes the one that has passed most stages; once a rank has begun, it never waits for a forward pass. So
  how many micro-batches does rank 0 begin with before the first one is back, for its next chunk? The other ranks do the
  same chunks and micro-batches in the same order. (Such a round has to be full: if m is not a multiple of its size,
  raise a `ValueError`.)
- **Backward passes** take the micro-batches in the same order as the forward passes, and the chunks the other way
  round.
- **The first backward pass.** On the last rank it comes right after the forward pass that it needs. Each other rank has
  made two forward passes more by then than the rank after it: one because its gradient comes a pass later, one so that
  messages have time to travel. A rank that has no more forward passes begins with its backward passes.
- After that comes one forward pass and one backward pass in turn, as long as there are forward passes; then the
  remaining backward passes.

**Example**: p = 2 and v = 2, so that rank 0 holds the stages 0 and 2, rank 1 the stages 1 and 3. In the
table 2F0 is the tuple `(2, "F", 0)`.

| m | rank | up to the first backward pass | in turn | the rest |
|---|---|---|---|---|
| 2 | 0 | 0F0 0F1 2F0 2F1 2B0 | | 2B1 0B0 0B1 |
| 2 | 1 | 1F0 1F1 3F0 3B0 | 3F1 3B1 | 1B0 1B1 |
| 4 | 0 | 0F0 0F1 2F0 2F1 0F2 2B0 | 0F3 2B1 2F2 0B0 2F3 0B1 | 2B2 2B3 0B2 0B3 |
| 4 | 1 | 1F0 1F1 3F0 3B0 | 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 | 1B2 1B3 |
"""


def interleaved(rank: int, num_ranks: int, num_microbatches: int, chunks: int) -> list[tuple[int, str, int]]:
    """Return the actions of one rank, in order."""
    raise NotImplementedError(
        "ch11.interleaved: which chunk and micro-batch has pass number i, and how many "
        "come first?"
    )
