"""What travels between processes, and what is said of what does not."""

import threading

import pytest
import torch

from dtlearn.runtime.errors import NotSendable
from dtlearn.runtime.pickles import pack, unpack


def test_a_closure_travels_with_what_it_holds():
    factor = torch.tensor([2.0, 3.0])
    assert unpack(pack(lambda x: x * factor, "f"))(2).tolist() == [4.0, 6.0]


def test_a_class_of_the_notebook_comes_back_as_itself():
    names = {"__name__": "__main__"}
    exec("class Point:\n    def __init__(self, x):\n        self.x = x", names)
    back = unpack(pack(names["Point"](3), "a point"))
    assert isinstance(back, names["Point"])
    assert back.x == 3


def test_a_tensor_of_another_device_travels_as_cpu():
    there = torch.ones(2, device="meta")
    assert there.device.type == "meta"
    with pytest.raises(NotSendable, match=r"the tensor cannot travel.*meta"):  # it has no data to bring to the CPU
        pack(there, "the tensor")


@pytest.mark.gpu
def test_a_gpu_tensor_travels_as_cpu():
    back = unpack(pack({"w": torch.ones(2, device="cuda", requires_grad=True)}, "w"))
    assert back["w"].device.type == "cpu"
    assert back["w"].tolist() == [1.0, 1.0]


def test_a_parameter_keeps_its_kind_and_gradient_flag():
    back = unpack(pack(torch.nn.Linear(2, 1), "a model"))
    assert all(isinstance(p, torch.nn.Parameter) and p.requires_grad for p in back.parameters())


@pytest.mark.parametrize("value", [threading.Lock(), (i for i in range(3))], ids=["lock", "generator"])
def test_what_belongs_to_one_process_is_named_with_advice(value):
    with pytest.raises(NotSendable, match=r"the argument cannot travel.*pickle(.|\n)*inside the function") as caught:
        pack(value, "the argument")
    assert isinstance(caught.value, ValueError)


def test_any_error_of_pickling_is_told():
    class Stubborn:
        def __reduce__(self):
            raise RuntimeError("I stay")

    with pytest.raises(NotSendable, match="I stay"):
        pack(Stubborn(), "it")


def test_a_module_that_is_missing_here_is_named():
    data = pack(pytest.importorskip, "f").replace(b"_pytest.outcomes", b"_pytest.outcomez")
    with pytest.raises(NotSendable, match=r"'_pytest.outcomez', which cannot be imported here"):
        unpack(data)
