"""The steps between a shard and what is sent: nothing is copied without need."""

import torch

from dtlearn.sharing.host_memory import Host
from dtlearn.zero.precision import MixedPrecisionPolicy
from dtlearn.zero.shard_store import ShardStore

CPU = torch.device("cpu")


def test_without_options_only_a_shard_is_copied():
    store, values = ShardStore(), torch.arange(4.0)
    shard = store.keep(values)
    assert torch.equal(shard, values) and shard.data_ptr() != values.data_ptr()
    assert store.on_device(shard, CPU) is shard and store.to_gather(shard, CPU).data_ptr() == shard.data_ptr()
    assert store.to_reduce(values, 2) is values
    assert store.to_gradient(values, shard, 2).tolist() == [0.0, 0.5, 1.0, 1.5]
    store.write(shard, torch.ones(4))
    assert store.copy(shard).tolist() == [1.0] * 4
    store.finish()


def test_a_policy_rounds_and_leaves_whole_numbers_alone():
    store = ShardStore(MixedPrecisionPolicy(torch.bfloat16))
    assert store.to_gather(torch.ones(2), CPU).dtype == torch.bfloat16
    assert store.of_dtype(torch.float32) is store
    assert store.of_dtype(torch.int64).to_gather(torch.tensor([1]), CPU).dtype == torch.int64


def test_a_host_keeps_shards_and_gradients():
    host = Host()
    store = ShardStore(host=host)
    shard = store.keep(torch.arange(3.0))
    gradient = store.to_gradient(torch.ones(3), shard, 1)
    assert all(host.holds(tensor) for tensor in (shard, gradient, store.copy(shard)))
    assert not host.holds(store.on_device(shard, CPU)) and store.to_gather(shard, CPU).tolist() == [0.0, 1.0, 2.0]
    store.write(shard, torch.ones(3))
    assert shard.tolist() == [1.0] * 3
    assert (host.to_host, host.to_device) == (3 * 12, 2 * 12)
