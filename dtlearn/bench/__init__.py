"""What the package costs, beside what else people use, measured in one run: `dtlearn bench NAME`.

`bench` says what a bench is, `benches` lists them. `platform/` measures what every chapter stands on; `chapters/` has
one file for each strategy, named as its package. `figures` and `status_line` are for all of them.

A new bench is a file in one of the two folders that ends in `BENCH = Bench(...)`, and its name in `benches`.
"""
