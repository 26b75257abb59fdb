# ch14.plan_memory: edit this file, then run `dtlearn grade ch14.plan_memory`.
"""Say how much memory a rank of a hybrid layout needs.

A GPT of `layers` blocks is trained with Adam on tp x pp x dp ranks. Will it fit? Count the bytes of a rank of
the first pipeline stage: it has the token embedding, and most micro-batches in flight.

**Given**, whole numbers: `layers`, `hidden` (h), `heads` (a), `vocabulary`, `length` (s, tokens of a sequence);
`batch`, sequences of a step; `tp`, `pp`, `dp`; `microbatch` (b, sequences); `zero`, the stage, 0 to 3. Then
`recompute`, `"none"`, `"selective"` or `"full"`, and `sequence_parallel`, a truth value. tp divides h, a and the
vocabulary, pp divides the layers, and dp x microbatch the batch.

**Return** a dict with whole numbers of bytes, under these keys:

- `"parameters"`, 2 bytes each, `"gradients"`, 4 bytes each, `"optimizer"`, 12 bytes each (fp32 weights, two moments).
  A block has 12 h² + 7 h numbers that tp divides, and 6 h that are whole on each rank (norms, two biases). The
  embedding has vocabulary x h, which tp divides; positions have none. The last stage has a final norm of 2 h, and its
  head is the embedding. With pp = 1 it is the first stage, too, and the embedding is there once.
  ZeRO divides over dp: stage 1 the optimizer's numbers, 2 gradients too, 3 parameters too. A share is rounded up to a
  whole number of numbers.
- `"activations"`, of the blocks (Korthikanti et al., arXiv 2205.05198). For one micro-batch a block has

  | bytes | what | divided by tp |
  |---|---|---|
  | 24 s b h | inside of attention and of the feed-forward network | always |
  | 5 a s² b | attention scores, with softmax and dropout | always |
  | 10 s b h | around them: norms, dropout, inputs | only with `sequence_parallel` |

  All is held until the micro-batch's backward pass; with `"selective"` all but the scores; with `"full"` only the
  block's input, 2 s b h of the last row. What is not held is computed again in backward, one block at a time: so it
  is there **once**, beside what is held for all blocks of the stage and all micro-batches in flight.

The schedule is 1F1B. Before its first backward pass the first stage runs as many micro-batches as there are stages,
or all that its pipeline has in a step, if they are fewer.

**Example**: `layers` = 2, `hidden` = 4, `heads` = 2, `vocabulary` = 8, `length` = 4, `batch` = 4, `tp` = 1,
`pp` = 2, `dp` = 2, `microbatch` = 1, `zero` = 1, nothing recomputed.

| | |
|---|---|
| numbers of the first stage | 12 x 16 + 13 x 4 + 8 x 4 = 276 |
| parameters, gradients | 2 x 276 = 552, 4 x 276 = 1,104 |
| optimizer, over dp = 2 | 12 x 138 = 1,656 |
| a block's activations | 34 x 16 + 5 x 2 x 16 = 704 |
| activations, two micro-batches in flight | 1,408 |

**Rule**: no communication.
"""


def plan_memory(
    layers: int,
    hidden: int,
    heads: int,
    vocabulary: int,
    length: int,
    batch: int,
    *,
    tp: int,
    pp: int,
    dp: int,
    microbatch: int,
    zero: int,
    recompute: str,
    sequence_parallel: bool,
) -> dict[str, int]:
    """Return the bytes of a rank of the first stage, by category."""
    raise NotImplementedError(
        "ch14.plan_memory: count a rank's numbers and its share of them, then what a "
        "block holds, and how often"
    )
