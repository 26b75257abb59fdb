"""Pictures of tensor parallelism: how weights are cut, what a sharded product and a layer send, and what that costs."""
