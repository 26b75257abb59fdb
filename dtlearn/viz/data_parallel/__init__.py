"""Pictures of data parallelism: who sees which sample, buckets on the link, large batches, scaling."""
