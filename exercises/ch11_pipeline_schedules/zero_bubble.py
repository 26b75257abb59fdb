# ch11.zero_bubble: edit this file, then run `dtlearn grade ch11.zero_bubble`.
"""Split the backward passes of 1F1B, and fill its bubble with the weights' part.

Another rank waits for the gradient of a stage's input, and no rank waits for the gradients of its weights. So
each backward pass B is split into `"I"`, the gradient of the input, and `"W"`, the gradients of the weights.
The I takes the place of the B. The W can be done at any time after it, best when the rank would be idle.

**Given** `orders`, the 1F1B schedule of p ranks with one stage each (stage r on rank r): for each rank the
list of its actions, tuples `(stage, op, microbatch)` with the ops `"F"` and `"B"`. There are m micro-batches;
m is at least p.

**Return** the new orders, in the same form, with the ops `"F"`, `"I"` and `"W"`:

- Each B becomes an I. The Fs and Is of a rank stay in the order of the Fs and Bs.
- For each I there is a W of the same stage and micro-batch, later in the order.
- **Memory**: no rank holds the activations of more than p micro-batches at any time, which is what rank 0 holds
  under 1F1B. They are held from F to W.
- **Time**: on every rank an F takes the time F, an I takes I and a W takes W, where W is neither longer than F
  nor longer than I. Then each rank is idle for (p - 1)(F + I - W) between time 0 and the end of the last action
  of any rank. With 1F1B it is (p - 1)(F + B), where B = I + W. Transfers take no time, and each rank does its
  actions in your order, each as soon as it can.

**Example** with two ranks and three micro-batches:

| rank | given | returned |
|---|---|---|
| 0 | 0F0 0F1 0B0 0F2 0B1 0B2 | 0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2 |
| 1 | 1F0 1B0 1F1 1B1 1F2 1B2 | 1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2 |

With F = I = W = 1 it looks like this, a column for each unit of time: each rank is idle for 1.

| rank | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 |
|---|---|---|---|---|---|---|---|---|---|---|
| 0 | F0 | F1 | | I0 | W0 | F2 | I1 | W1 | I2 | W2 |
| 1 | | F0 | I0 | F1 | I1 | W0 | F2 | I2 | W1 | W2 |
"""

Action = tuple[int, str, int]


def zero_bubble(orders: list[list[Action]]) -> list[list[Action]]:
    """Return the orders with split backward passes."""
    raise NotImplementedError(
        "ch11.zero_bubble: on which rank may how many Ws be put off?"
    )
