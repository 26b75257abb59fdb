"""Count what tensor parallelism sends for one block.

t ranks share a transformer block: attention by heads, then a feed-forward network, first by columns and
then by rows. Each of the two halves begins with f and ends with g. One step trains m micro-batches. How
many bytes does a rank send for the block in a step, and in how many calls?

**Given**, whole numbers: `b`, sequences of a micro-batch; `s`, tokens of a sequence; `h`, features; `t`;
`itemsize`, bytes of a number, gradients included; `m`. t divides h. And three truth values:

- `sequence_parallel`: between the halves a rank has s/t tokens of each sequence. In place of f the tokens
  are gathered (all-gather), in place of g they are added up and divided (reduce-scatter). In backward each
  of the two becomes the other one. What works on a part of the tokens then has partial gradients: the two
  norms, each with a weight and a bias, and the biases of the two row-parallel layers. Once a step, after
  the last backward pass, one all-reduce adds them all up.
- `gather_again` (only with `sequence_parallel`): a rank keeps only its own tokens of the input of the
  column-parallel layers. In backward, where the weights' gradients need all tokens, they are gathered once
  more in each half.
- `recompute`: nothing within the block is kept. Before its backward pass the whole forward pass runs again.

**Return** a dict with

| key | |
|---|---|
| `"forward"` | bytes that a rank sends in the forward passes of a step |
| `"recomputed"` | in those that run again |
| `"backward"` | in the backward passes |
| `"gradients"` | in the all-reduce at the end |
| `"calls"` | how many collectives a rank calls for all of these |

All are whole numbers. In a ring, a rank sends (t - 1)/t of the whole tensor's bytes in an all-gather or a
reduce-scatter, twice that in an all-reduce. **The whole tensor** is what an all-gather makes, and what a
reduce-scatter begins with. A single rank sends and calls nothing.

If sequence parallelism is on and t does not divide s, raise a `ValueError` with a message that names both
numbers.

**Example**: `b` = 1, `s` = 2, `h` = 4, `t` = 2, `itemsize` = 2, `m` = 1, all three off. The tensor between
the halves has 8 elements, 16 bytes; an all-reduce of it sends 16. The forward pass has two of them, one in
each half: 32 bytes.
"""


def block_bytes(
    *,
    b: int,
    s: int,
    h: int,
    t: int,
    itemsize: int,
    m: int,
    sequence_parallel: bool,
    gather_again: bool,
    recompute: bool,
) -> dict[str, int]:
    """Return bytes sent, and calls made, for one block in a step."""
    # BEGIN SOLUTION: refuse what does not fit; count halves, and bytes of each
    if sequence_parallel and s % t:
        raise ValueError(f"{t} ranks do not divide {s} tokens")
    once = b * s * h * itemsize * (t - 1) // t * m  # of each half, in all all-gathers or reduce-scatters
    forward = 2 * 2 * once
    gradients = 2 * 6 * h * itemsize * (t - 1) // t if sequence_parallel else 0
    calls_of_a_half = 2 if sequence_parallel else 1
    passes = 3 if recompute else 2
    calls = 2 * m * (passes * calls_of_a_half + gather_again) + sequence_parallel
    return {
        "forward": forward,
        "recomputed": forward * recompute,
        "backward": forward + 2 * once * gather_again,
        "gradients": gradients,
        "calls": calls if t > 1 else 0,
    }
    # END SOLUTION
