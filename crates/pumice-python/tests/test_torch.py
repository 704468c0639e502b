"""Tensors of PyTorch and CuPy, where these are installed; on a CUDA device, where there is one."""

import numpy as np
import pytest

import pumice
from pumice._arrays import on_host

torch = pytest.importorskip("torch", reason="PyTorch is not installed here")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")


def test_tensors_on_the_cpu_are_read_where_they_are(field):
    tensor = torch.from_numpy(field)
    assert np.shares_memory(on_host(tensor), field)
    assert pumice.compress(tensor, abs=1e-3) == pumice.compress(field, abs=1e-3)
    turned = tensor.permute(2, 0, 1)
    assert np.array_equal(pumice.decompress(pumice.compress(turned, lossless=True)), turned.numpy())
    assert pumice.check(tensor, pumice.compress(tensor, rel=1e-3))["bound_kept"]
    data = pumice.compress(tensor, abs=torch.tensor(1e-3))
    assert np.array_equal(pumice.decompress(data, device=tensor.device), pumice.decompress(data))


def test_other_tensors_are_refused_with_advice(field):
    for tensor in torch.from_numpy(field).bfloat16(), torch.from_numpy(field).half():
        with pytest.raises(TypeError, match=r"float32.*convert by tensor\.float\(\)"):
            pumice.compress(tensor, abs=1)
    with pytest.raises(TypeError, match=r"integers.*tensor\.double\(\)"):
        pumice.compress(torch.arange(5), abs=1)
    x = torch.zeros(5, 4, dtype=torch.complex64)
    for tensor, advice in (
        (torch.zeros(5, requires_grad=True), r"pass tensor\.detach\(\)"),
        (torch.zeros(5, 4).to_sparse(), r"pass tensor\.to_dense\(\)"),
        (x.conj(), r"pass tensor\.resolve_conj\(\)"),
        (x.conj().imag, r"pass tensor\.resolve_neg\(\)"),
        (x, r"compress torch\.view_as_real\(tensor\)"),
    ):
        with pytest.raises((TypeError, ValueError), match=advice):
            pumice.compress(tensor, abs=1)
    assert pumice.compress(torch.view_as_real(x), abs=1)


class Fields(torch.utils.data.Dataset):
    """Compressed fields, which workers of a DataLoader decompress."""

    def __init__(self, field):
        self.fields = [pumice.compress(field * (i + 1), rel=1e-3) for i in range(6)]

    def __len__(self):
        return len(self.fields)

    def __getitem__(self, i):
        return torch.from_numpy(pumice.decompress(self.fields[i]))


def test_workers_of_a_data_loader_decompress(field):
    fields = Fields(field)
    loader = torch.utils.data.DataLoader(fields, batch_size=2, num_workers=2, timeout=60)
    for i, batch in enumerate(loader):
        assert torch.equal(batch, torch.stack([fields[2 * i], fields[2 * i + 1]]))


@needs_cuda
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("preset", ["fast", "balanced", None])
def test_tensors_on_a_device_give_the_bytes_of_the_cpu(field, preset, dtype):
    x = field.astype(dtype)
    tensor = torch.from_numpy(x).cuda()
    on_device = pumice.compress(tensor, rel=1e-3, preset=preset)
    assert on_device == pumice.compress(x, rel=1e-3, preset=preset or "balanced")
    part = tensor[3:7]  # contiguous, but not at the start of its memory
    assert pumice.compress(part, rel=1e-3, preset="fast") == pumice.compress(x[3:7], rel=1e-3, preset="fast")
    array = pumice.decompress(on_device, device="cuda")
    assert (array.shape, array.dtype) == (x.shape, dtype)
    back = torch.from_dlpack(array)
    del array
    assert back.is_cuda and np.array_equal(back.cpu().numpy(), pumice.decompress(on_device))


@needs_cuda
def test_device_memory_is_released(field):
    data = pumice.compress(np.tile(field, (40, 1, 1)), abs=1e-3, preset="fast")
    pumice.decompress(data, device="cuda")
    free, _ = torch.cuda.mem_get_info()
    for _ in range(20):
        torch.from_dlpack(pumice.decompress(data, device="cuda"))
        pumice.decompress(data, device="cuda").__dlpack__()
    assert torch.cuda.mem_get_info()[0] >= free - (16 << 20)


@needs_cuda
def test_earlier_work_on_another_stream_is_waited_for():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.zeros(1 << 24, device="cuda")
        for _ in range(50):
            x = x + 1
        data = pumice.compress(x, lossless=True, preset="fast")
    assert np.all(pumice.decompress(data) == 50)


@needs_cuda
def test_what_a_device_cannot_do(field):
    tensor = torch.from_numpy(field).cuda()
    with pytest.raises(pumice.UnsupportedError):
        pumice.compress(tensor, rel=1e-3, preset="small")
    with pytest.raises(ValueError, match="contiguous"):
        pumice.compress(tensor[:, ::2], abs=1)
    with pytest.raises(TypeError, match="float32"):
        pumice.compress(tensor.half(), abs=1)
    with pytest.raises(pumice.PumiceError):
        pumice.compress(tensor, psnr=60)
    with pytest.raises(pumice.DeviceError, match="devices"):
        pumice.decompress(pumice.compress(field, abs=1), device="cuda:99")


@needs_cuda
def test_cupy(field):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed here")
    data = pumice.compress(cupy.asarray(field), abs=1e-3, preset="fast")
    assert data == pumice.compress(field, abs=1e-3, preset="fast")
    assert np.array_equal(cupy.from_dlpack(pumice.decompress(data, device="cuda")).get(), pumice.decompress(data))
