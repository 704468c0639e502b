"""What the table of arrays consists of."""

from dataclasses import dataclass
from typing import Any, Callable


@dataclass(frozen=True)
class Package:
    """A package of Debian (`deb`) or PyPI (`sdist`, `wheel`) in one version."""

    kind: str
    name: str
    version: str
    licence: str

    @property
    def title(self):
        """Name and version, as its archive is called."""
        return f"{self.name}-{self.version}"

    def __str__(self):
        registry = {"deb": "Debian", "sdist": "PyPI", "wheel": "PyPI"}[self.kind]
        return f"{registry} {self.name} {self.version}"


@dataclass(frozen=True)
class Array:
    """One array: what it is called, where it comes from, what it shows and the hash of its bytes."""

    name: str
    dtype: str
    shape: tuple
    shows: str
    # From a package: the package, a file in it, what reads the file, and what is taken of it.
    package: Package | None = None
    path: str = ""
    read: Callable | None = None
    crop: Any = ...
    # From a simulator: its name and options.
    simulator: str = ""
    # A value that stands for "no data", as the original has it.
    fill: float | None = None
    sha256: str = ""

    @property
    def file(self):
        return f"{self.name}_{self.dims}.{self.dtype}"

    @property
    def dims(self):
        return "x".join(map(str, self.shape))

    @property
    def origin(self):
        return f"{self.package}: {self.path}" if self.package else f"cargo xtask simulate {self.simulator}"

    @property
    def licence(self):
        return self.package.licence if self.package else "MIT OR Apache-2.0"
