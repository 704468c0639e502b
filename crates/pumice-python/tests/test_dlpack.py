"""Tensors of other libraries, from a DLPack producer that needs ctypes only."""

import ctypes
import ctypes.util

import numpy as np
import pytest

import pumice
from pumice._arrays import is_on_cuda, on_host

CPU, CUDA, ROCM = 1, 2, 10


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("type_lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class ManagedTensor(ctypes.Structure):
    pass


Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(ManagedTensor))
ManagedTensor._fields_ = [("tensor", Tensor), ("manager_context", ctypes.c_void_p), ("deleter", Deleter)]

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Producer:
    """An array that is accessible through DLPack only; it may claim to be on any device."""

    def __init__(self, array, device=CPU, type_code=2):
        self.array = array
        self.device = device
        self.n_released = 0
        self.stream = None
        n = array.ndim
        self.shape = (ctypes.c_int64 * n)(*array.shape)
        self.strides = (ctypes.c_int64 * n)(*(s // array.itemsize for s in array.strides))
        tensor = Tensor(
            array.ctypes.data, device, 0, n, type_code, 8 * array.itemsize, 1, self.shape, self.strides, 0
        )
        self.managed = ManagedTensor(tensor, None, Deleter(self.release))

    def release(self, _):
        self.n_released += 1

    def __dlpack_device__(self):
        return (self.device, 0)

    def __dlpack__(self, *, stream=None, **_):
        self.stream = stream
        return new_capsule(ctypes.addressof(self.managed), b"dltensor", None)


def test_a_tensor_on_the_cpu_is_read_where_it_is(field):
    tensor = Producer(field)
    found = on_host(tensor)
    assert np.shares_memory(found, field)
    del found
    assert tensor.n_released == 1
    data = pumice.compress(tensor, abs=1e-3)
    assert tensor.n_released == 2
    assert data == pumice.compress(field, abs=1e-3)


def test_strides_and_types_of_tensors(field):
    turned = Producer(field.transpose(1, 2, 0)[::2])
    assert np.array_equal(
        pumice.decompress(pumice.compress(turned, lossless=True)), field.transpose(1, 2, 0)[::2]
    )
    with pytest.raises(TypeError, match="integers"):
        pumice.compress(Producer(np.arange(5), type_code=0), abs=1)
    brain_floats = Producer(np.zeros(5, "int16"), type_code=4)
    with pytest.raises(TypeError, match="only float32 and float64"):
        pumice.compress(brain_floats, abs=1)


def test_advice_on_types_is_that_of_the_library():
    class Torch(Producer):
        __module__ = "torch"
        dtype = "torch.bfloat16"

    half, brain = np.zeros(5, "float16"), np.zeros(5, "int16")
    for tensor, advice in (
        (Torch(half), r"float16 .*convert by tensor\.float\(\)"),
        (Torch(brain, type_code=4), r"torch\.bfloat16 .*convert by tensor\.float\(\)"),
        (Torch(np.arange(5), type_code=0), r"integers .*convert by tensor\.double\(\)"),
        (Torch(np.zeros(5, "complex64"), type_code=5), r"complex64 .*compress torch\.view_as_real\(tensor\)"),
        (Producer(half), r"float16 .*convert by \.astype\('float32'\)"),
        (Producer(brain, type_code=4), r"convert by \.astype\('float32'\)"),
    ):
        with pytest.raises(TypeError, match=advice):
            pumice.compress(tensor, abs=1)


@pytest.mark.parametrize("device", [CPU, CUDA])
@pytest.mark.parametrize(
    ("attributes", "advice"),
    [
        ({"requires_grad": True}, r"tensor\.detach\(\)"),
        ({"layout": "torch.sparse_coo"}, r"tensor\.to_dense\(\)"),
        ({"is_conj": lambda: True}, r"tensor\.resolve_conj\(\)"),
        ({"is_conj": lambda: False, "is_neg": lambda: True}, r"tensor\.resolve_neg\(\)"),
    ],
)
def test_tensors_of_torch_with_other_values_than_in_their_memory(field, attributes, advice, device):
    class Torch(Producer):
        __module__ = "torch"

    tensor = Torch(field, device)
    vars(tensor).update(attributes)
    with pytest.raises(ValueError, match=advice):
        pumice.compress(tensor, abs=1)


def test_numpy_arrays_are_not_sent_through_dlpack(field):
    field.flags.writeable = False  # which older versions of DLPack cannot express
    assert not is_on_cuda(field)
    assert not is_on_cuda(np.float32(3))
    assert pumice.decompress(pumice.compress(np.float32(3), abs=1)).shape == ()


def test_other_devices_are_refused(field):
    with pytest.raises(ValueError, match="copy it to the CPU"):
        pumice.compress(Producer(field, ROCM), abs=1)


@pytest.mark.skipif(ctypes.util.find_library("cuda") is not None, reason="there is a CUDA driver here")
def test_cuda_without_a_driver_is_an_error_and_releases_the_tensor(field):
    tensor = Producer(field, CUDA)
    with pytest.raises(pumice.DeviceError, match="CUDA driver"):
        pumice.compress(tensor, abs=1e-3)
    assert tensor.n_released == 1
    assert tensor.stream == 1  # the legacy default stream
    with pytest.raises(RuntimeError, match="CUDA driver"):
        pumice.decompress(pumice.compress(field, abs=1e-3), device="cuda")


def test_cuda_tensors_are_checked_before_the_device_is_asked(field):
    for tensor in (Producer(field[:, ::2], CUDA), Producer(field.T, CUDA)):
        with pytest.raises(ValueError, match="contiguous"):
            pumice.compress(tensor, abs=1)
        assert tensor.n_released == 1
    with pytest.raises(TypeError, match="float32 and float64"):
        pumice.compress(Producer(np.arange(5), CUDA, type_code=0), abs=1)


def test_names_of_devices(field):
    data = pumice.compress(field, abs=1e-3)
    assert pumice.decompress(data, device="cpu").shape == field.shape
    for name in ("gpu", "cuda:", "cuda:x", "cuda:-1", 0):
        with pytest.raises(ValueError, match="unknown device"):
            pumice.decompress(data, device=name)
    with pytest.raises(ValueError, match="out="):
        pumice.decompress(data, device="cuda", out=np.empty_like(field))
