"""One notation for divided arrays, and the four cases of a product of two of them.

For any process, in this order: `sharded`, the notation as data; `product_case`, which case a product is and what has to
be communicated; `product_steps`, who holds which block when, for pictures. On the ranks: `sharded_product`, each case
run.
"""
