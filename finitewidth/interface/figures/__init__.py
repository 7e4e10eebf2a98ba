"""Figures drawn from records of the library; `plots` is their public face (`fw.plots`)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["plots"])
