"""Plans of buckets, right and wrong ones, for the check of ch03.plan_buckets."""

from __future__ import annotations

from collections.abc import Sequence

Plan = list[list[int]]


def fill(
    nbytes: Sequence[int],
    dtypes: Sequence[str],
    bucket_cap: int,
    first_bucket_cap: int,
    *,
    order: Sequence[int] | None = None,
    overflow: bool = False,
    strict: bool = False,
    first_of_all: bool = False,
    keep_open: bool = True,
    close_all: bool = False,
    large_alone: bool = False,
    second_cap: int | None = None,
) -> Plan:
    """Buckets in the order in which they were closed, then those still open. All options from `order` on are
    mistakes: `overflow` closes a bucket before it exceeds its cap, `strict` only above it, `first_of_all` gives the
    small cap to one bucket only, without `keep_open` what is open at the end is lost, `close_all` closes the
    buckets of all dtypes with one that is full, `large_alone` gives a parameter above the cap a bucket of its own,
    `second_cap` is that of the second bucket of a dtype."""
    closed: Plan = []
    filling: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    caps = dict.fromkeys(dtypes, first_bucket_cap)
    second = dict.fromkeys(dtypes, bucket_cap if second_cap is None else second_cap)

    def close(dtype: str) -> None:
        closed.append(filling.pop(dtype))
        del sizes[dtype]
        for one in caps if first_of_all else [dtype]:
            caps[one] = second.pop(one, bucket_cap)

    for index in reversed(range(len(nbytes))) if order is None else order:
        dtype = dtypes[index]
        if large_alone and nbytes[index] > bucket_cap:
            closed.append([index])
            caps[dtype] = bucket_cap
            continue
        if overflow and dtype in filling and sizes[dtype] + nbytes[index] > caps[dtype]:
            close(dtype)
        filling.setdefault(dtype, []).append(index)
        sizes[dtype] = sizes.get(dtype, 0) + nbytes[index]
        if not overflow and sizes[dtype] >= caps[dtype] + strict:
            for one in list(filling) if close_all else [dtype]:
                close(one)
    return closed + list(filling.values()) * keep_open


def ready_order(plan: Plan) -> Plan:
    return sorted(plan, key=lambda bucket: bucket[-1], reverse=True)


def cut_at_dtypes(nbytes: Sequence[int], dtypes: Sequence[str], bucket_cap: int, first_bucket_cap: int) -> list[Plan]:
    """One open bucket, closed at its cap or where the dtype changes; with one small cap, and with one a dtype."""
    made = []
    for per_dtype in (False, True):
        plan: Plan = []
        caps = dict.fromkeys(dtypes, first_bucket_cap)
        size, now = 0, ""
        for index in reversed(range(len(nbytes))):
            dtype = dtypes[index]
            if dtype != now or size >= caps[dtype]:
                for one in [] if not now else [now] if per_dtype else caps:
                    caps[one] = bucket_cap
                plan.append([])
                size, now = 0, dtype
            plan[-1].append(index)
            size += nbytes[index]
        made.append(plan)
    return made
