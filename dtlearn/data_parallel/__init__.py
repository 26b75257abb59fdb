"""Layer 3: data parallelism. Every rank has the whole model and a part of each batch; gradients are averaged.

Chapter 3 reads these files in this order: `sampler`, `naive`, `buckets`, `reducer`, `ddp`.
"""
