"""What is done after a package has been imported, now or later."""

from __future__ import annotations

import importlib.abc
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def after_import(packages: set[str], then: Callable[[], object]) -> None:
    """Calls `then` after each import of one of these packages from now on."""
    sys.meta_path.insert(0, _AfterImport(packages, then))


class _AfterImport(importlib.abc.MetaPathFinder):
    """Lets the other finders find the packages, and adds a call to what their loaders do."""

    def __init__(self, packages: set[str], then: Callable[[], object]) -> None:
        self._packages = packages
        self._then = then
        self._searches = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # Another finder may ask all finders in turn, this one included.
        if fullname not in self._packages or getattr(self._searches, "is_running", False):
            return None
        self._searches.is_running = True
        try:
            others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
            spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in others)), None)
        finally:
            self._searches.is_running = False
        loader = None if spec is None else spec.loader
        # Those of frozen and built-in modules are classes, which all such modules share.
        if loader is not None and hasattr(loader, "exec_module") and not isinstance(loader, type):
            self._extend(loader)
        return spec

    def _extend(self, loader: importlib.abc.Loader) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._then()

        loader.exec_module = exec_module  # type: ignore[method-assign]
