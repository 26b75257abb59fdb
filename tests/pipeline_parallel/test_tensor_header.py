"""A header makes the room that the tensor needs."""

import pytest
import torch

from dtlearn.pipeline_parallel.tensor_header import DTYPES, empty_header, pack_header, room_for


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (1, 2, 3, 4, 5, 6, 7, 8)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_header_makes_the_room_that_the_tensor_needs(shape, dtype):
    tensor = torch.zeros(shape, dtype=dtype, requires_grad=dtype.is_floating_point)
    header = pack_header(tensor)
    assert header.shape == empty_header().shape and header.dtype is empty_header().dtype
    assert header.nbytes == empty_header().nbytes == 88
    room, requires_grad = room_for(header)
    assert (room.shape, room.dtype, requires_grad) == (tensor.shape, tensor.dtype, tensor.requires_grad)


@pytest.mark.parametrize("tensor", [torch.zeros([1] * 9), torch.zeros(2, dtype=torch.complex64)])
def test_a_tensor_without_a_header_is_refused(tensor):
    with pytest.raises(ValueError, match="at most 8 dimensions and of a common dtype"):
        pack_header(tensor)
