"""Every warning points at the line of the user, however many functions and wrappers stand between."""

import ast
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import finitewidth as fw
from finitewidth.core.display import user_warnings

X = np.array([[1.0, 0.2, -0.4], [-0.3, 0.8, 0.1], [0.4, -1.0, 0.6], [0.1, 0.5, 1.2]])
Y = 30 * np.array([[1.0], [-1.0], [0.5], [0.2]])
NARROW = fw.MLP((3, 3, 3, 1), "tanh")  # order 1/n is meaningless
DATA = X[:2], Y[:2], X[2:]
WIDE = fw.MLP((3, 12, 12, 1), "tanh")
MODEL = torch.nn.Sequential(
    torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)
).double()
STEPS = fw.GradientDescent(0.1, 3)
QUIET = fw.Run(progress=False)


def narrow_statistics() -> fw.records.Prepared:
    return fw.prepare(NARROW, *DATA)


def stepped_by_another_optimizer() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    groups = fw.torch.parameter_groups(layers, 0.05)
    torch.optim.Adam(groups).step()


def train(net: fw.Network = WIDE, **options) -> fw.records.Ensemble:
    return fw.train_ensemble(net, *DATA, **{"members": 4, "key": 0, "run": QUIET, **options})


def unfinished() -> None:
    train(algorithm=fw.GradientDescent(1e-4), method=fw.Stepping(training_error=1e-8, max_steps=3))


def inaccurate(store: Path) -> None:
    fw.fit(WIDE, X[:3], Y[:3], accuracy=1e-300, run=fw.Run(store))


Expansion = fw.warnings.ExpansionWarning
CALLS = {
    "predict": (Expansion, lambda: fw.predict(NARROW, *DATA)),
    "predict, of a model of PyTorch": (Expansion, lambda: fw.predict(MODEL, *DATA)),
    "prepared": (Expansion, lambda: narrow_statistics().predict()),
    "trajectory": (Expansion, lambda: fw.trajectory(NARROW, *DATA, times=[3.0])),
    "expected loss": (
        Expansion,
        lambda: fw.expected_loss(NARROW, *DATA, Y[2:], depths=(3,), widths=(3,), run=QUIET),
    ),
    "posterior": (Expansion, lambda: fw.bayes.posterior(NARROW, *DATA, order=1)),
    "posterior, of a model of PyTorch": (Expansion, lambda: fw.bayes.posterior(MODEL, *DATA, order=1)),
    "evidence": (Expansion, lambda: fw.bayes.evidence(NARROW, *DATA[:2], order=1, gradient=False)),
    "extrapolate": (
        Expansion,
        lambda: fw.extrapolate(WIDE, *DATA, algorithm=STEPS, widths=(2, 3, 4), members=16, run=QUIET),
    ),
    "a kink": (fw.warnings.KinkWarning, lambda: fw.Activation(lambda z: abs(z) + z)),
    "unfinished": (fw.warnings.UnfinishedWarning, unfinished),
    "another optimizer": (fw.torch.OptimizerWarning, stepped_by_another_optimizer),
}


@pytest.fixture(autouse=True)
def without_the_type_checks_of_tests(monkeypatch):
    """Tests wrap the library's functions in checks of types, which no user has."""
    monkeypatch.setattr(user_warnings, "BETWEEN", (*user_warnings.BETWEEN, "helpers"))


@pytest.mark.parametrize("name", CALLS)
def test_a_warning_names_the_file_of_the_user(name):
    category, call = CALLS[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    files = [one.filename for one in caught if issubclass(one.category, category)]
    assert files and set(files) == {__file__}


def test_a_solution_that_is_not_accurate_names_the_file_of_the_user(tmp_path):
    with pytest.warns(fw.warnings.AccuracyWarning) as caught:
        inaccurate(tmp_path / "kernel.zarr")
    assert caught[0].filename == __file__


def test_no_module_warns_without_the_helper():
    """Frames are not counted by hand anywhere else."""
    library = Path(fw.__file__).parent
    for path in library.rglob("*.py"):
        if path.name == "user_warnings.py":
            continue
        calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        names = {ast.unparse(function) for function in calls}
        assert "warnings.warn" not in names, path
