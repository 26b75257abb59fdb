"""The rules of the server without processes: an asynchronous run that is the same every time, and a real one replayed.

`compute`, what a worker computes, from a model and its batches; `simulate`, a server and its workers under a clock that
no machine disturbs; `replay`, the parameters of a real run from its log. All of them are for any process.
"""
