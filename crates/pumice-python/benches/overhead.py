"""What Python costs: `pumice.compress` and `pumice.decompress` beside the same calls in Rust, on an array of 64 MB.

    cargo build --release --package pumice-python --example rust_speed
    python crates/pumice-python/benches/overhead.py target/release/examples/rust_speed [THREADS]

Both sides work on the same file in turns, so that other load on the machine affects both alike. The least time of each
counts. The overhead must stay below 5 %: the exit status says whether it does.
"""

import subprocess
import sys
import tempfile
import time

import numpy as np

import pumice

SHAPE = (64, 512, 512)
TURNS = {"fast": 80, "balanced": 50, "small": 20}
REL = 1e-3
MOST_OVERHEAD = 0.05


def field() -> np.ndarray:
    """A smooth field with some noise."""
    z, y, x = np.meshgrid(*(np.linspace(0, 8, n, dtype="float32") for n in SHAPE), indexing="ij")
    noise = np.random.default_rng(0).normal(scale=1e-3, size=SHAPE).astype("float32")
    return np.ascontiguousarray(np.sin(x + y) * np.cos(y - z) + noise)


class RustSide:
    def __init__(self, program: str, path: str, preset: str, threads: int) -> None:
        command = [program, path, "x".join(map(str, SHAPE)), preset, str(REL), str(threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def time(self, what: str) -> float:
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def seconds(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main(program: str, threads: int) -> int:
    x = field()
    is_kept = True
    print(f"{x.nbytes / 2**20:.0f} MB, rel={REL}, threads={threads}; least seconds of all turns")
    print(f"{'preset':<10}{'what':<12}{'Rust':>10}{'Python':>10}{'overhead':>10}")
    with tempfile.NamedTemporaryFile(suffix=".f32") as file:
        x.tofile(file)
        file.flush()
        for preset, turns in TURNS.items():
            rust = RustSide(program, file.name, preset, threads)
            data = pumice.compress(x, rel=REL, preset=preset, threads=threads)
            calls = {
                "compress": lambda: pumice.compress(x, rel=REL, preset=preset, threads=threads),
                "decompress": lambda: pumice.decompress(data, threads=threads),
            }
            for what, call in calls.items():
                pairs = [(rust.time(what), seconds(call)) for _ in range(turns)]
                in_rust, in_python = (min(times) for times in zip(*pairs, strict=True))
                overhead = in_python / in_rust - 1
                is_kept &= overhead < MOST_OVERHEAD
                print(f"{preset:<10}{what:<12}{in_rust:>10.4f}{in_python:>10.4f}{overhead:>10.1%}")
            rust.end()
    print("kept" if is_kept else f"NOT kept: an overhead is above {MOST_OVERHEAD:.0%}")
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0))
