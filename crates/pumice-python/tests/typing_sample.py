"""What users write, for mypy --strict: types of arguments and results are as documented."""

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import pumice

x: NDArray[np.float32] = np.zeros((4, 5), "float32")
data = pumice.compress(x, abs=1e-3, preset="fast", chunk_shape=(2, 5), attributes={"units": "K"})
assert_type(data, bytes)
assert_type(pumice.decompress(data), NDArray[Any])
assert_type(pumice.decompress(memoryview(data), out=x), NDArray[Any])
assert_type(pumice.check(x, data), dict[str, Any])
assert_type(pumice.save("x.pum", x, rel=1e-3, psnr=80.0), dict[str, Any])
with pumice.open("x.pum", threads=2) as f:
    assert_type(f, pumice.File)
    assert_type(f.shape, tuple[int, ...])
    assert_type(f.chunks_decoded, int)
    f[0:4, ..., 3]
assert_type(pumice.info("x.pum"), dict[str, Any])
assert_type(pumice.analyze(x, rel=[1e-3, 1e-4]), dict[str, Any])

pumice.compress(x, absolute=1e-3)  # type: ignore[call-arg]
pumice.compress(x, abs="1e-3")  # type: ignore[arg-type]
pumice.compress(x, abs=1.0, preset="tiny")  # type: ignore[arg-type]
pumice.save("x.pum", x, absolute=1e-3)  # type: ignore[call-arg]
