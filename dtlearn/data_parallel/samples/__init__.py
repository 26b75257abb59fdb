"""The samples that each rank sees, and how it counts them so that all ranks agree.

It runs on the ranks; the orders and shares (`sampler.epoch_order`, `sampler.shard_indices`) are pure functions. In this
order: `sampler` deals the samples out, `resumable` goes on in the middle of an epoch; `token_mean` is a loss where
ranks have different numbers of tokens; `metrics` adds up what `evaluation` counts, each sample once.
"""
