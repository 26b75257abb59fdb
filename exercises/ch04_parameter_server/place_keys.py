# ch04.place_keys: edit this file, then run `dtlearn grade ch04.place_keys`.
"""Place keys on servers: the largest first, each to the server that has the least.

A server's link carries what its keys weigh, in every pull and in every push. With several servers the
fullest one is the slowest, and everybody waits for it.

**Given** `sizes`, the bytes of each key by name, all above 0; and `num_servers`.

**Return** a dict: for each key the number of its server, from 0.

1. Take the keys by size, the largest first; of equal ones the one that stands first in `sizes`.
2. Each goes to the server that has the fewest bytes so far; of several such servers, to the one with the
   lowest number.

With fewer keys than servers a server would keep nothing: raise a `ValueError` that names both numbers.

**Example**: `sizes` is `{"w1": 24, "b1": 4, "w2": 32, "b2": 8}`, with 2 servers.

| key | bytes | goes to | server 0 has | server 1 has |
|---|---|---|---|---|
| w2 | 32 | 0 | 32 | 0 |
| w1 | 24 | 1 | 32 | 24 |
| b2 | 8 | 1 | 32 | 32 |
| b1 | 4 | 0 | 36 | 32 |

**Rule**: no communication. Every rank computes the same placement.
"""

from collections.abc import Mapping


def place_keys(sizes: Mapping[str, int], num_servers: int) -> dict[str, int]:
    """Return the number of each key's server."""
    raise NotImplementedError(
        "ch04.place_keys: the largest first, each to the server that has the fewest "
        "bytes"
    )
