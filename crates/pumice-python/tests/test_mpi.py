"""pumice.mpi under mpirun. `cargo xtask mpi test` runs it, with the library for MPI."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
EXAMPLE = TESTS.parent / "examples" / "mpi_field.py"

pytestmark = pytest.mark.skipif(
    "PUMICE_MPI_LIBRARY" not in os.environ,
    reason="PUMICE_MPI_LIBRARY does not name libpumice_mpi; `cargo xtask mpi test` builds it and runs these tests",
)


def ranks(n: int, folder: Path, *program: object) -> str:
    env = os.environ | {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }
    command = ["mpirun", "--oversubscribe", "-n", str(n), sys.executable, *map(str, program)]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_ranks(n: int, tmp_path: Path) -> None:
    assert f"{n} ranks: passed" in ranks(n, tmp_path, TESTS / "mpi_ranks.py", tmp_path)


def test_example(tmp_path: Path) -> None:
    assert "bytes of values became" in ranks(4, tmp_path, EXAMPLE)
    assert not list(tmp_path.iterdir())


def test_a_missing_library_is_named(tmp_path: Path) -> None:
    program = "import pumice.mpi; from mpi4py import MPI; pumice.mpi.open(MPI.COMM_WORLD, 'x.pum')"
    env = os.environ | {"PUMICE_MPI_LIBRARY": str(tmp_path / "none.so")}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and "cargo xtask install-c --mpi" in done.stderr
