"""Writes the fields of the device benchmarks in docs/benchmarks.md, as f32 and f64.

    python -m bench.fields FOLDER [--extent 512]

Needs the packages of bench/requirements.txt; 512 values along each axis take 8 GB of memory and less than a minute on many cores.
"""

import argparse
from pathlib import Path

import numpy as np
import scipy.fft

# Above this wave number the spectrum of turbulence falls quickly.
DISSIPATION = 42.0
# Centres of waves in the unit cube, and how far they have come.
WAVES = [((0.20, 0.39, 0.59), 60), ((0.68, 0.29, 0.49), 100), ((0.50, 0.78, 0.25), 140)]


def turbulence(n: int, seed: int) -> np.ndarray:
    """A random field with Kolmogorov's spectrum, of variance 1."""
    noise = np.random.default_rng(seed).standard_normal((n, n, n), dtype=np.float32)
    spectrum = scipy.fft.rfftn(noise, workers=-1)
    k = np.fft.fftfreq(n, 1 / n).astype(np.float32)
    last = np.arange(n // 2 + 1, dtype=np.float32)
    k = np.sqrt(k[:, None, None] ** 2 + k[None, :, None] ** 2 + last[None, None, :] ** 2)
    k[0, 0, 0] = 1
    spectrum *= k ** np.float32(-11 / 6) * np.exp(-((k / np.float32(DISSIPATION)) ** 2))
    spectrum[0, 0, 0] = 0
    field = scipy.fft.irfftn(spectrum, (n, n, n), workers=-1)
    return field / field.std()


def waves(n: int) -> np.ndarray:
    """Fronts of spherical waves in a volume of zeros."""
    field = np.zeros((n, n, n), dtype=np.float32)
    positions = np.arange(n, dtype=np.float32)
    for centre, radius in WAVES:
        z, y, x = (positions - np.float32(c * n) for c in centre)
        r = np.sqrt(z[:, None, None] ** 2 + y[None, :, None] ** 2 + x[None, None, :] ** 2)
        d = r - radius * n / 512
        front = np.cos(d * np.float32(0.26)) * np.exp(-((d / 8) ** 2)) * (10 / (r + 10))
        field += np.where(np.abs(d) < 24, front, 0)
    return field


def particles(n: int, seed: int) -> np.ndarray:
    """A coordinate of particles in the order of their cells."""
    positions = np.arange(n, dtype=np.float64) * (256 / n)
    return positions + 0.5 * np.random.default_rng(seed).standard_normal(n)


def write(folder: Path, name: str, field: np.ndarray) -> None:
    single = field.astype(np.float32)
    stem = f"{name}_{'x'.join(str(n) for n in field.shape)}"
    single.tofile(folder / f"{stem}.f32")
    single.astype(np.float64).tofile(folder / f"{stem}.f64")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--extent", type=int, default=512, help="values along each axis")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    n = args.extent
    field = turbulence(n, 1)
    write(args.folder, "turbulence", field)
    write(args.folder, "density", np.exp(np.float32(3.5) * field))
    write(args.folder, "waves", waves(n))
    write(args.folder, "particles", particles(n**3, 2))
    # Extents that are multiples of nothing.
    write(args.folder, "odd", turbulence(n - 1, 3))


if __name__ == "__main__":
    main()
