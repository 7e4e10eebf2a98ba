"""Rooms that are open to extension: all modules of a folder are imported, so a new file needs no list."""

import importlib
import pkgutil
from types import ModuleType


def import_modules(package: ModuleType) -> None:
    """Import all modules of a package, each of which registers the kind that it holds."""
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
