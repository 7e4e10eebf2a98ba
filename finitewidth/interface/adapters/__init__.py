"""Adapters to other libraries, each imported at first use (`fw.torch`, `fw.optax`, `fw.sklearn`)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["optax", "sklearn", "torch"])
