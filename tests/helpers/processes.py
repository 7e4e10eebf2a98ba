"""Python in a process of its own."""

import os
import subprocess
import sys

from helpers.paths import ROOT


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess:
    clean = {k: v for k, v in os.environ.items() if k != "JAX_ENABLE_X64"}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**clean, **environment}, cwd=ROOT
    )
