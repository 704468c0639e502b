"""The arrays that are accepted: those of NumPy, and those of other libraries through DLPack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import DtypeError, InvalidArgumentError

if TYPE_CHECKING:
    from typing_extensions import Buffer  # that of collections.abc came with Python 3.12

    BytesLike: TypeAlias = Buffer | NDArray[Any]

# Kinds of devices in DLPack whose memory CUDA can reach.
_CUDA = 2
_CUDA_MANAGED = 13


@runtime_checkable
class SupportsDLPack(Protocol):
    """A tensor of any library that supports DLPack, such as PyTorch and CuPy."""

    def __dlpack__(self, *, stream: Any = None) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, int]: ...


Tensor = ArrayLike | SupportsDLPack


def is_on_cuda(array: object) -> bool:
    """Whether the values are in the memory of a CUDA device."""
    if isinstance(array, np.ndarray | np.generic) or not isinstance(array, SupportsDLPack):
        return False
    return int(array.__dlpack_device__()[0]) in (_CUDA, _CUDA_MANAGED)


def on_host(array: Tensor) -> NDArray[Any]:
    """The array in C order, aligned, of native byte order: a copy, unless it already is so."""
    casts = _casts(array)
    if not isinstance(array, np.ndarray):
        array = _from_elsewhere(array, casts)
    if isinstance(array, np.ma.MaskedArray):
        array = _without_mask(array)
    dtype = array.dtype
    if dtype.kind != "f" or dtype.itemsize not in (4, 8):
        raise DtypeError(_advice(dtype, casts))
    return np.require(array, dtype=dtype.newbyteorder("="), requirements=["C_CONTIGUOUS", "ALIGNED"])


def _casts(array: object) -> dict[str, str]:
    """How the library of this array converts it to each type that is supported, and takes complex numbers apart."""
    if _is_of_torch(array):
        parts = dict.fromkeys(("complex64", "complex128"), "torch.view_as_real(tensor)")
        return {"float32": "tensor.float()", "float64": "tensor.double()", **parts}
    casts = {dtype: f".astype('{dtype}')" for dtype in ("float32", "float64")}
    return casts | {f"complex{2 * n}": f".real and .imag, or .view('float{n}')" for n in (32, 64)}


def _is_of_torch(array: object) -> bool:
    return type(array).__module__.partition(".")[0] == "torch"


def check_exportable(array: object) -> None:
    """Refuses tensors of PyTorch whose values are not what is in their memory. PyTorch refuses to export most of them too, but
    not negative views, and names no remedy.
    """
    if not _is_of_torch(array):
        return
    tensor: Any = array
    what, remedy = None, ""
    if getattr(tensor, "requires_grad", False):
        what, remedy = "a part of a graph", "detach"
    elif str(getattr(tensor, "layout", "torch.strided")) != "torch.strided":
        what, remedy = "sparse", "to_dense"
    elif hasattr(tensor, "is_conj") and tensor.is_conj():
        what, remedy = "a conjugate view", "resolve_conj"
    elif hasattr(tensor, "is_neg") and tensor.is_neg():
        what, remedy = "a negative view", "resolve_neg"
    if what is not None:
        raise InvalidArgumentError(f"the tensor is {what}; pass tensor.{remedy}()")


def _from_elsewhere(array: Tensor, casts: dict[str, str]) -> NDArray[Any]:
    if isinstance(array, SupportsDLPack) and not isinstance(array, np.generic):
        kind = int(array.__dlpack_device__()[0])
        if kind != 1:
            raise InvalidArgumentError(f"the array is on a device (DLPack's kind {kind}); copy it to the CPU first")
        check_exportable(array)
        try:
            return np.from_dlpack(array)
        except (BufferError, RuntimeError) as error:
            dtype = getattr(array, "dtype", "of an unknown type")
            raise DtypeError(
                f"tensors of {dtype} are not supported, only float32 and float64; convert by {casts['float32']} ({error})"
            ) from error
    return np.asarray(array)


def _without_mask(array: np.ma.MaskedArray[Any, Any]) -> NDArray[Any]:
    if np.ma.is_masked(array):
        raise InvalidArgumentError(
            "some values are masked, and only values can be kept: compress array.filled(v), and give fill_value=v"
        )
    return np.asarray(array.data)


def _advice(dtype: np.dtype[Any], casts: dict[str, str]) -> str:
    refused = f"arrays of {dtype} are not supported, only float32 and float64"
    match dtype.kind:
        case "O":
            return (
                f"{refused}: this one holds Python objects; is it ragged, or does it hold None? Convert numbers by"
                " .astype('float64')"
            )
        case "U" | "S":
            return f"{refused}: this one holds text; of a file, pass the array that is in it"
        case "V":
            return f"{refused}: this one holds records; take its fields one by one"
        case "i" | "u" | "b":
            return f"{refused}: integers would lose their exactness; convert by {casts['float64']} if that is meant"
        case "f":
            return f"{refused}; convert by {casts['float32' if dtype.itemsize == 2 else 'float64']}"
        case "c":
            return f"{refused}; compress {casts.get(dtype.name, '.real and .imag')}"
        case _:
            return f"{refused}; convert by {casts['float64']}"
