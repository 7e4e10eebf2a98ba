"""Measurements behind the numbers of the documentation; README.md in this folder names the topics.

They run from the root of the repository, `python -m benchmarks.kernels.speed`, and so measure the package of
this tree. Some use samplers of the tests, which know no theory, and problems of the examples.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "tests"), str(ROOT / "examples")]
