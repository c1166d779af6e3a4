import numpy as np
import torch

from robust_eval.model.local.device import fetched, to_device


def test_an_array_comes_as_a_tensor_of_its_kind():
    for array in (np.arange(6).reshape(2, 3), np.array([True, False]), np.empty((0, 2))):
        tensor = to_device(array, torch.device("cpu"))
        assert tensor.device.type == "cpu"
        assert np.array_equal(tensor.numpy(), array)
        assert tensor.numpy().dtype == array.dtype


def test_tensors_of_any_kind_and_shape_come_back_as_arrays_of_numbers():
    given = [torch.arange(6).view(2, 3), torch.tensor([True, False]), torch.empty(0, 4), torch.tensor([1.5]).half()]
    found = fetched(*given)
    assert [array.shape for array in found] == [(2, 3), (2,), (0, 4), (1,)]
    assert [array.tolist() for array in found] == [[[0, 1, 2], [3, 4, 5]], [1, 0], [], [1.5]]
    assert {array.dtype for array in found} == {np.dtype(np.float64)}
