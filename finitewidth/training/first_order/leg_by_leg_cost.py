"""What the end of training costs leg by leg, in memory and time, and its refusal before it begins.

Legs, their contractions and their duals all take time as the fourth power of the number of samples. A few
legs of some of the samples are timed, which tells the whole within a factor of two: legs of samples that are
nearly parallel to others take several times as long.
"""

import functools
import math
import time
from collections.abc import Callable

import numpy as np

from finitewidth.core.checkpoint import finished_tasks
from finitewidth.core.cores import SingleThreadedProducts, available
from finitewidth.core.display.durations import spoken
from finitewidth.core.memory import require_memory
from finitewidth.core.tasks import Runner
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.network import Network
from finitewidth.theory.unrolled.leg_by_leg import LegSlices, Request
from finitewidth.theory.unrolled.unroll import unroll
from finitewidth.training.first_order.eigenmodes import Modes
from finitewidth.training.first_order.mean_terms import TERMS
from finitewidth.training.many_points.sampled_training import QUICK

Recipe = Callable[[Modes, AbstractAlgorithm], list[Request]]

_QUICK = 40  # samples up to which no time is estimated
_TIMED = 80  # samples of the pilot, at most
_MINUTE = 60.0  # seconds
_LEGS = 4  # that are timed in each pair of source layers
_HELD = 200  # arrays of N^3 numbers that two legs hold while they are averaged, about


def require_memory_for(modes: Modes, samples: int) -> None:
    """Refuse duals and averages that do not fit."""
    terms = {(term.tensor, term.open_slot) for listed in TERMS.values() for term in listed}
    require_memory(
        8 * (len(terms) * modes.outputs * modes.count**3 + _HELD * samples**3),
        f"the end of training of {modes.count} inputs, leg by leg,",
        "pass at most {fit} inputs, or stop at a finite time with method=fw.Sampling()",
        count=modes.count,
        power=3,
    )


def check_time(
    net: Network,
    X: np.ndarray,
    modes: Modes,
    algorithm: AbstractAlgorithm,
    recipe: Recipe,
    *,
    tolerance: float,
    budget: float,
    running: Runner,
) -> None:
    """Refuse what would take longer than the budget; a run that goes on in its store was let in before."""
    begun = running.store is not None and finished_tasks(running.store, running.prefix + "legs")
    if math.isinf(budget) or len(X) <= _QUICK or begun:
        return
    rows, part = _some(modes, len(X))
    slices = LegSlices(unroll(net, X[rows]), functools.partial(recipe, part, algorithm), tolerance)
    workers = min(2, available()) if running.client is None else sum(running.client.nthreads().values())
    seconds = _processor_seconds(slices) * (len(X) / len(rows)) ** 4 / max(1, workers)
    if seconds > budget:
        fit = int(modes.count * (budget / seconds) ** 0.25)
        raise ValueError(
            f"the end of training of {modes.count} inputs needs {spoken(seconds)} leg by leg, above "
            f"budget={budget:g} s; raise the budget, pass at most {fit} inputs"
            f"{_earlier(net, modes, algorithm, budget)}."
        )


def _some(modes: Modes, samples: int) -> tuple[np.ndarray, Modes]:
    """Some of the samples, evenly, and their modes."""
    count, most = modes.count, min(1.0, _TIMED / samples)
    training = np.linspace(0, count - 1, math.ceil(most * count)).astype(int)
    tests = np.linspace(count, samples - 1, math.floor(most * (samples - count))).astype(int)
    rows = np.concatenate([training, tests])
    K, G, H = (modes.back(modes.back(m, 0), 1)[np.ix_(rows, rows)] for m in (modes.K, modes.G, modes.H))
    return rows, Modes.of(K, G, H, (modes.vectors @ modes.y.T)[training])


def _processor_seconds(slices: LegSlices) -> float:
    """Of all legs, from some in the middle of equal parts; the first, which compiles, is not counted."""
    count = slices.unrolled.count
    legs = [int((2 * k + 1) * count / (2 * _LEGS)) for k in range(_LEGS)]
    tasks = [number * count + leg for number in range(len(slices.pairs)) for leg in legs]
    with SingleThreadedProducts():
        started = time.process_time()
        _ = slices.requests
        duals = time.process_time() - started
        slices(tasks[0])
        started = time.process_time()
        for task in tasks:
            slices(task)
    return duals + (time.process_time() - started) * slices.count / len(tasks)


def _earlier(net: Network, modes: Modes, algorithm: AbstractAlgorithm, budget: float) -> str:
    """The time at which samples of neurons are quick, where they can be drawn and the budget has minutes."""
    clock = algorithm.clock
    if clock is None or net.ladder.has_skips or budget < _MINUTE:
        return ""
    end = QUICK / float(modes.l[-1])
    stop = f"steps={math.floor(end / clock.eta)}" if clock.eta else f"time={end:.4g}"
    return f", or stop at {stop} (l_max T = {QUICK:.0f}), where method=fw.Sampling() takes minutes"
