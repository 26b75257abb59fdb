# ch05.when_it_pays: edit this file, then run `dtlearn grade ch05.when_it_pays`.
"""When does a codec pay?

N ranks average their gradients in each step, in one of two ways:

- **plain**: a ring all-reduce of the tensor, in 2 (N - 1) steps. In each a rank sends 1/N of the tensor;
- **coded**: each rank encodes its gradients to a **payload**. Payloads cannot be added up on the way: a
  ring all-gather brings all of them to all ranks, in N - 1 steps. In each a rank sends one payload. Then
  it decodes all N payloads, its own too, and takes their mean.

A step takes `alpha` seconds, and the bytes that a rank sends in it over the bandwidth. Nothing happens at
the same time as something else.

**Given** `num_ranks` (N, at least 2); `nbytes`, the size of the tensor; `alpha`, the latency in seconds;
`beta`, the bandwidth of the link in bytes per second; and of the codec `payload`, its size in bytes;
`encode`, the seconds to make one; and `decode`, the seconds to decode one.

**Return** a dict with

| key | |
|---|---|
| `"plain"`, `"coded"` | seconds of both ways on this link |
| `"pays"` | on which links coded is the faster one: `"below"` some bandwidth, `"above"` it, `"always"` or `"never"` |
| `"bandwidth"` | with `"below"` and `"above"`, the bandwidth at which both take the same time; otherwise `None` |

A link may have any bandwidth above 0; `alpha` is the same on all. Where both ways take the same time on
every link, coded never pays.

**Example**: `when_it_pays(4, 1000.0, 0.0, 1e6, payload=100.0, encode=0.0005, decode=0.0001)`

| | sent | encoding, decoding | result |
|---|---|---|---|
| `"plain"` | 1500 bytes, 1.5 ms | | `0.0015` |
| `"coded"` | 300 bytes, 0.3 ms | 0.5 ms, 4 times 0.1 ms | `0.0012` |
| `"pays"` | | | `"below"` |
| `"bandwidth"` | | | `1333333.3` |

Coded sends 1200 bytes less and computes for 0.9 ms: 1200 / 0.0009 is the bandwidth.

**Rules**: plain arithmetic, no communication.

**To think about**: the payload of top-k is 8 bytes (index and value) for each of k of the n numbers, which
have 4 bytes each. Up to which k/n can there be a link that is slow enough?
"""


def when_it_pays(
    num_ranks: int, nbytes: float, alpha: float, beta: float, *, payload: float, encode: float, decode: float
) -> dict[str, float | str | None]:
    """Seconds without and with a codec, and the links on which it pays."""
    raise NotImplementedError(
        "ch05.when_it_pays: bytes and seconds of both ways; then compare them on slow "
        "and on fast links"
    )
