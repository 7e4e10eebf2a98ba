"""neural-tangents 0.6.5: its environment, and the processes in which the two sides of a benchmark answer.

A file `..._peer.py`, run by the Python of that environment, is the side of neural-tangents; a benchmark with
`--serve` is the side of finitewidth. A request is one line of JSON on standard input, an answer one line on
standard output: so the runs of the two can be interleaved.
"""

import ctypes
import functools
import gc
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import types
import warnings
from importlib import metadata
from pathlib import Path

import numpy as np

PACKAGES = (
    "neural-tangents==0.6.5",
    "jax==0.4.23",
    "jaxlib==0.4.23",
    "numpy==1.26.4",
    "scipy==1.12.0",
    "ml_dtypes==0.3.2",
    "opt_einsum==3.3.0",
    "frozendict==2.4.6",
)


def environment():
    """The Python of an environment with neural-tangents, which is made if it is not there."""
    home = Path(tempfile.gettempdir()) / "finitewidth-benchmark-neural-tangents-0.6.5"
    python, stamp = home / "bin" / "python", home / "complete"
    if stamp.exists():
        return python
    if not (3, 9) <= sys.version_info[:2] <= (3, 12):
        raise SystemExit(
            "jaxlib 0.4.23 exists for Python 3.9 to 3.12 only; run this script with one of these."
        )
    print(f"making an environment for neural-tangents in {home} (once; takes a minute)", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, *PACKAGES], check=True)  # without TensorFlow, which the kernels do not use
    stamp.touch()
    return python


def versions(*packages):
    """The installed versions."""
    return {"Python": platform.python_version(), **{name: metadata.version(name) for name in packages}}


# --- requests and answers ---------------------------------------------------------------------------


class Side:
    """A process that answers one request at a time."""

    def __init__(self, command):
        variables = {**os.environ, "JAX_PLATFORMS": "cpu"}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=variables)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()

    def ask(self, do, **request):
        """Send a request and wait for its answer."""
        self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit("a side of the benchmark ended early; its message is above.")
        return json.loads(answer)


def serve(prepare, warm, about, inputs):
    """Answer requests until standard input ends.

    A case is a list of numbers and strings. `prepare(*case)` gives a function from inputs to K and Theta, or
    to two other arrays; `warm(*case)` does what must be done once before memory is measured;
    `inputs(case, draw)` are the inputs of the case, other ones for every draw.
    """
    prepare = functools.cache(prepare)
    answers = {
        "about": lambda: about,
        "warm": functools.partial(_warm, warm),
        "run": functools.partial(_run, prepare, inputs),
    }
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(answers[request.pop("do")](**request)), flush=True)


def _warm(warm, *, case):
    warm(*case)
    gc.collect()
    try:  # return freed memory to the system, so that later use becomes visible
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        pass
    return {}


def _run(prepare, inputs, *, case, repeats=1, draw=0, save=None, corner=0):
    """Times of calls with inputs number `draw` and following, and a corner of what the last one gave."""
    start = time.perf_counter()
    call = prepare(*case)
    preparation, seconds, busy = time.perf_counter() - start, [], []
    for number in range(draw, draw + repeats):
        X, K, Theta = inputs(case, number), None, None
        start, worked = time.perf_counter(), time.process_time()
        K, Theta = call(X)
        seconds.append(time.perf_counter() - start)
        busy.append(time.process_time() - worked)
    if save:
        np.savez(save, K=np.asarray(K), Theta=np.asarray(Theta))
    corners = {name: np.asarray(M[:corner, :corner]).tolist() for name, M in (("K", K), ("Theta", Theta))}
    return {"preparation": preparation, "seconds": seconds, "processor seconds": busy, **corners}


# --- neural-tangents --------------------------------------------------------------------------------


def imported_stax():
    """The part of neural-tangents that makes kernels, in double precision."""
    warnings.simplefilter("ignore")  # every numerical layer warns
    tensorflow_part = "neural_tangents.experimental"  # imports TensorFlow; the kernels do not use it
    sys.modules[tensorflow_part] = types.ModuleType(tensorflow_part)
    import jax
    from neural_tangents import stax

    jax.config.update("jax_enable_x64", True)
    return stax


def about_peer():
    return versions("neural-tangents", "jax", "jaxlib", "numpy", "scipy")
