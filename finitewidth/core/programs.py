"""Programs that XLA has compiled, kept in the user's cache for later processes.

A folder belongs to one version of XLA and one kind of processor, since programs use all its instructions.
Whoever has chosen a cache for JAX keeps it; FINITEWIDTH_PROGRAMS names another folder, or is "off".
"""

import functools
import hashlib
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

_LEAST_SECONDS = 0.2  # of compilation that are worth a file


def _folder() -> Path | None:
    chosen = os.environ.get("FINITEWIDTH_PROGRAMS", "")
    if chosen == "off":
        return None
    if chosen:
        return Path(chosen).expanduser()
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "finitewidth" / f"programs-{metadata.version('jaxlib')}-{_processor()}"


def _processor() -> str:
    """A short name of this kind of processor, by its instructions where the system tells them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        about = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        about = platform.processor() + platform.machine()
    return hashlib.sha256(about.encode()).hexdigest()[:12]


@functools.cache
def keep_programs(least_seconds: float = _LEAST_SECONDS) -> None:
    """From now on, find programs that an earlier process compiled, and keep new ones that took so long."""
    import jax

    settings: Any = jax.config
    if settings.jax_compilation_cache_dir is not None:
        return
    try:
        folder = _folder()
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            return
    except (OSError, RuntimeError):  # no home, or one that cannot be written to: compile again
        return
    from jax.experimental.compilation_cache import compilation_cache

    settings.update("jax_compilation_cache_dir", str(folder))
    if settings.jax_persistent_cache_min_compile_time_secs > least_seconds:
        settings.update("jax_persistent_cache_min_compile_time_secs", least_seconds)
    compilation_cache.reset_cache()  # a process decides at its first program whether it has a cache
