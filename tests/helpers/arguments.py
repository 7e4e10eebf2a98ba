"""The public functions with an order, a method or a run, and another value for each of their arguments.

A row says what a function is given, which choices of order and method are tried, and how each argument is
changed. New functions and arguments are new rows: `tests/journeys/test_arguments.py` misses them otherwise.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import finitewidth as fw

NET = fw.MLP((2, 12, 12, 1), "sin", C_b=0.1, C_W=1.1)
TANH = NET.replace(activation="tanh")  # whose averages are not known in closed form
X = np.array([[1.0, 0.2], [-0.3, 0.8], [0.4, -1.0], [0.6, 0.5]])
Y = 0.1 * np.array([[1.0], [-0.5]])
DATA = {"net": NET, "X_train": X[:2], "Y_train": Y, "X_test": X[2:]}
TWO = fw.losses.one_hot([0, 1], 2)
FLOW = fw.GradientFlow(0.5)

FIRST_ORDER = (None, fw.Tensors(), fw.LegByLeg(), fw.Sampling(samples=2000))
METHODS = (*FIRST_ORDER, fw.FunctionSpace(members=8))
METHODS_CHANGED = {  # another value for each argument of a method
    fw.Tensors: {"tolerance": 1e-3, "kernel_tolerance": 1e-18, "remember": 4},
    fw.LegByLeg: {"tolerance": 1e-5, "budget": 1000.0},
    fw.Sampling: {"samples": 3000, "budget": 1000.0, "variance": True, "key": 3},
    fw.FunctionSpace: {"members": 9, "key": 3},
    fw.Stepping: {"tolerance": 1e-5, "max_steps": 50, "training_error": 1e-3},
}
ALWAYS = {("expected_loss", "variance")}  # which is sampled there in any case, as its docstring says
UNTRIED = {fw.Sampling: {"tolerance"}}  # stands instead of `samples`, and runs for minutes where it is small


class NoWorkers:
    """A client whose cluster is empty: whoever asks it says so."""

    def nthreads(self) -> dict:
        return {}


class Either(tuple):
    """Values of which one at least must act or be refused: the other says what happens anyway."""

    def __new__(cls, *values: Any):
        return super().__new__(cls, values)


@dataclasses.dataclass(frozen=True)
class Row:
    """A function, what it is always given, the choices that are tried, and other values of its arguments."""

    call: Callable[..., Any]
    given: Mapping[str, Any]
    choices: tuple[Mapping[str, Any], ...] = ({},)
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def orders(*methods: Any, **more: Any) -> tuple[dict[str, Any], ...]:
    """Both orders with each of the methods."""
    return tuple({"order": order, "method": method, **more} for order in (0, 1) for method in methods)


ROWS = {
    "predict": Row(
        fw.predict,
        DATA,
        orders(*METHODS) + orders(None, fw.FunctionSpace(8), fw.Sampling(samples=2000), algorithm=FLOW),
        {
            "algorithm": fw.GradientFlow(0.7),
            "loss": fw.CrossEntropy(),
            "ridge": 0.1,
            "cutoff": 0.9,
            "covariance": Either(False, True),
        },
    ),
    "predict, of classes": Row(
        fw.predict,
        {**DATA, "net": NET.with_widths((2, 12, 12, 2)), "Y_train": TWO, "loss": fw.CrossEntropy()},
        orders(None, fw.FunctionSpace(8), algorithm=FLOW),
        {
            "algorithm": fw.GradientFlow(0.7),
            "loss": fw.CrossEntropy(2.0),
            "ridge": 0.1,
            "cutoff": 0.9,
            "covariance": Either(False, True),
        },
    ),
    "trajectory": Row(
        fw.trajectory,
        {**DATA, "times": [0.0, 0.4]},
        orders(None, fw.Tensors(), fw.LegByLeg(), fw.FunctionSpace(members=8)),
        {
            "times": [0.0, 0.5],
            "algorithm": fw.GradientDescent(0.1),
            "loss": fw.CrossEntropy(),
            "ridge": 0.1,
            "cutoff": 0.9,
        },
    ),
    "prepare": Row(
        fw.prepare,
        DATA,
        tuple({"method": method} for method in METHODS),
        {"covariance": Either(False, True)},
    ),
    "expected_loss": Row(
        fw.expected_loss,
        {**DATA, "Y_test": Y, "depths": (2,), "widths": (16,)},
        tuple({"method": method, "algorithm": FLOW} for method in METHODS),
        {"depths": (3,), "widths": (20,), "algorithm": fw.GradientFlow(0.7), "loss": fw.CrossEntropy()},
    ),
    "fit": Row(
        fw.fit,
        {name: DATA[name] for name in ("net", "X_train", "Y_train")},
        ({}, {"algorithm": FLOW}),
        {"algorithm": fw.GradientFlow(0.7), "ridge": 0.1, "cutoff": 0.9, "accuracy": 1e-5},
    ),
    "solve": Row(
        fw.solve,
        {"net": TANH, "X": X[:2]},
        orders(None, fw.Tensors(), fw.Sampling(samples=2000)),
        {"layers": [1], "tensors": ("V",)},
    ),
    "kernels": Row(
        fw.kernels,
        {"net": fw.MLP((2, 8, 1), "tanh"), "X": X},
        ({},),
        {"X_other": X[:1], "layer": 1, "tolerance": 1e-18},
    ),
    "bayes.posterior": Row(
        fw.bayes.posterior,
        {**DATA, "noise": 0.1},
        orders(None, fw.Tensors(), fw.LegByLeg()),
        {"noise": 0.2, "cumulants": True},
    ),
    "bayes.evidence": Row(
        fw.bayes.evidence,
        {"net": TANH, "X": X[:2], "Y": Y, "noise": 0.1, "gradient": False},
        orders(None, fw.Tensors(), fw.LegByLeg()),
        {"noise": 0.2, "gradient": True},
    ),
    "bayes.rank": Row(
        fw.bayes.rank,
        {"networks": {"one": TANH, "two": TANH.replace(C_W=1.3)}, "X": X[:2], "Y": Y, "noise": 0.1},
        orders(None, fw.Tensors(), fw.LegByLeg()),
        {"noise": 0.2},
    ),
    "bayes.sample": Row(
        fw.bayes.sample,
        {**DATA, "members": 40, "key": 0, "noise": 0.5},
        ({},),
        {"members": 42, "key": 1, "noise": 0.7, "layers": [1]},
    ),
    "train_ensemble": Row(
        fw.train_ensemble,
        {**DATA, "algorithm": fw.GradientDescent(0.1, 3), "members": 4, "key": 0},
        ({}, {"method": fw.Stepping()}, {"method": fw.Sampling(samples=2000)}),
        {
            "algorithm": fw.GradientDescent(0.1, 4),
            "members": 6,
            "key": 1,
            "loss": fw.CrossEntropy(),
            "record": fw.Record(at=(0, 3)),
            "control": fw.control_variate(*DATA.values(), fw.GradientDescent(0.1, 3)),
        },
    ),
    "sample_statistics": Row(
        fw.sample_statistics,
        {"net": NET, "X": X[:2], "members": 8, "key": 0},
        ({},),
        {"members": 12, "key": 1, "layer": 2, "tensors": ("V",), "neurons": 4},
    ),
    "learning_curve": Row(
        fw.learning_curve,
        {"net": NET, "X": X, "Y": np.concatenate([Y, -2 * Y]), "sizes": (1, 2)},
        ({}, {"subsets": 3}),
        {"sizes": (1, 3), "noise": 0.3, "order": 1, "subsets": 2, "key": 1},
    ),
    "extrapolate": Row(
        fw.extrapolate,
        {**DATA, "algorithm": fw.GradientDescent(0.1, 2), "widths": (6, 8, 10), "members": 16},
        ({},),
        {
            "algorithm": fw.GradientDescent(0.1, 3),
            "widths": (6, 8, 11),
            "members": 18,
            "key": 1,
            "loss": fw.CrossEntropy(),
        },
    ),
}
