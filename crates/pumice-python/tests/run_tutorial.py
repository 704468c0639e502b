"""Runs the code of a tutorial, block by block, in the current folder: `python run_tutorial.py docs/tutorials/numpy.md`.

Blocks marked `python` share one namespace, blocks marked `sh` run in bash. A block marked `output` is what the block
before it prints; `...` in it stands for anything.
"""

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(path: Path) -> int:
    """Runs all blocks, and returns how many there are."""
    text = path.read_text()
    names = {"__name__": "__main__"}
    n_run, printed = 0, ""
    for block in BLOCK.finditer(text):
        kind, code = block.groups()
        line = text.count("\n", 0, block.start()) + 1
        try:
            if kind == "python":
                # Empty lines before the code make the line numbers of errors those of the file.
                printed = run_python("\n" * line + code, path, names)
            elif kind == "sh":
                printed = run_shell(code)
            elif kind == "output":
                check(code, printed)
            n_run += kind in ("python", "sh")
        except Exception as error:
            error.add_note(f"in the block at {path}:{line}")
            raise
    return n_run


def run_python(code: str, path: Path, names: dict) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, str(path), "exec"), names)
    return out.getvalue()


def run_shell(code: str) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code], capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    if ended.returncode != 0:
        raise RuntimeError(f"bash failed with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def check(expected: str, printed: str) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if not doctest.OutputChecker().check_output(expected, printed, flags):
        raise AssertionError(f"the tutorial shows\n{expected}\nbut its code prints\n{printed}")


if __name__ == "__main__":
    n_blocks = run(Path(sys.argv[1]))
    print(f"{sys.argv[1]}: {n_blocks} blocks")
