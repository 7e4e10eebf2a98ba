"""Rooms that are open to extension: every module of a folder is imported, so that a new file is known."""

import importlib
import pkgutil
from types import ModuleType


def import_modules(package: ModuleType) -> None:
    """Import all modules of a package, each of which registers the kind that it holds."""
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
