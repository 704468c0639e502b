"""Annotations and stubs, checked by mypy; skipped where that is not installed."""

import subprocess
import sys
from pathlib import Path

import pytest

import pumice

pytest.importorskip("mypy")

FOLDER = Path(__file__).parent


def run(*arguments: str, cwd: Path) -> None:
    ended = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, cwd=cwd)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_package_and_a_sample_of_its_use_are_strictly_typed(tmp_path):
    package = Path(pumice.__file__).parent
    cache = f"--cache-dir={tmp_path}"
    run("mypy", "--strict", cache, str(FOLDER / "typing_sample.py"), "-p", "pumice", cwd=package.parent)


def test_the_stub_of_the_native_half_is_what_that_has():
    run("mypy.stubtest", "pumice._pumice", cwd=FOLDER)
