"""Annotations and stubs, checked by mypy; skipped where that is not installed."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")

CRATE = Path(__file__).parent.parent


def run(*arguments: str) -> None:
    ended = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, cwd=CRATE)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_package_and_a_sample_of_its_use_are_strictly_typed(tmp_path):
    run("mypy", f"--cache-dir={tmp_path}")  # files and strictness: pyproject.toml


def test_the_stub_of_the_native_half_is_what_that_has():
    run("mypy.stubtest", "pumice._pumice")
