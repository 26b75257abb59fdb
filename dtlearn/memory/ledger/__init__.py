"""The memory of a step, storage by storage.

In this order: `record`, what was counted, as data; `storage_ledger`, which counts bytes and nothing else, for budgets;
`ledger`, which also knows what they are for, with `roles`, `saved` and `origins`; `measure`, a step recorded, here and
on ranks; `on_gpu`, the allocator's figures beside it.
"""
