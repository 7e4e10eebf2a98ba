"""Every test runs in double precision, and with JAX's implicit promotion of types forbidden."""

import os
import re
import time
from pathlib import Path

# Programs are compiled in one piece. By default XLA cuts each into dozens for as many threads, which takes
# more processor time than it saves where every core has tests of its own. The programs compute the same.
ONE_PIECE = "--xla_cpu_parallel_codegen_split_count=1"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_PIECE}".strip()

import jax  # noqa: E402
import jaxtyping  # noqa: E402
import pytest  # noqa: E402
from helpers.type_checks import as_needed  # noqa: E402

jaxtyping.jaxtyped = as_needed  # before the first import of the package, which the hook decorates with it

import finitewidth as fw  # noqa: E402  also switches double precision on

jax.config.update("jax_numpy_dtype_promotion", "strict")

# What one test has compiled serves the others, in both workers. To bound the size of this cache, JAX would
# read the whole folder under a lock at every new program; here programs are removed after a month instead.
# Without the lock a program may be read while it is being written: it is then compiled again, and
# pyproject.toml ignores the warning.
COMPILED = Path(__file__).parents[1] / ".pytest_cache" / "compiled"
MONTH = 30 * 24 * 3600
jax.config.update("jax_compilation_cache_dir", str(COMPILED))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
# commands, servers and workers that tests start find these programs too
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(COMPILED)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"


ACTIVATIONS = {name.partition("(")[0] for name in fw.activations()}

# Tests that are repeated over activations run with these; the other activations are left to `make test-long`.
REPRESENTATIVE = {"linear", "relu", "perceptron", "hardtanh", "tanh", "sin", "erf", "gelu"}
ABOUT_ACTIVATIONS = (
    "test_activation.py",
    "test_classification.py",
)  # there every activation is a fact of its own


def pytest_sessionstart(session: pytest.Session) -> None:
    """Remove old programs, before any worker reads them."""
    if not hasattr(session.config, "workerinput") and COMPILED.exists():
        for program in COMPILED.iterdir():
            if program.stat().st_mtime < time.time() - MONTH:
                program.unlink()


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is long
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark repetitions of a test that also runs with a representative activation."""
    repeated: dict[str, list[tuple[pytest.Item, bool]]] = {}
    for item in items:
        named = _activations_of(item)
        if named and item.path.name not in ABOUT_ACTIVATIONS:
            function = item.nodeid.partition("[")[0]
            repeated.setdefault(function, []).append((item, named <= REPRESENTATIVE))
    for runs in repeated.values():
        if any(representative for _, representative in runs):
            for item, representative in runs:
                if not representative:
                    item.add_marker("long")


def _activations_of(item: pytest.Item) -> set[str]:
    """The activations that the parameters of a test name."""
    _, bracket, parameters = item.nodeid.partition("[")
    words = set(re.findall(r"[a-z_]+(?:\([^)]*\))?", parameters)) if bracket else set()
    return {word for word in words if word.partition("(")[0] in ACTIVATIONS}


@pytest.fixture
def key():
    """The same random numbers on every day."""
    return jax.random.key(20260215)
