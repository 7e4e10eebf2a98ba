"""Scripts of `examples/` as modules."""

import importlib.util

from helpers.paths import ROOT


def example(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
