"""Every argument of experiments, statistics and Bayes' rule acts, or is refused in one sentence."""

import jaxtyping
import numpy as np
import pytest

import finitewidth as fw

X = np.array([[1.0, 0.5], [-0.5, 2.0], [0.3, -1.0]])
Y = np.array([[0.5], [-0.5], [1.0]])
NET = fw.MLP((2, 8, 1), "tanh", C_b=0.1, C_W=1.2)
DESCENT = fw.GradientDescent(0.1, 2)


def solve(**options):
    return fw.solve(NET, X, **options)


def kernels(**options):
    return fw.kernels(NET, X, **options)


def posterior(**options):
    return fw.bayes.posterior(NET, X, Y, noise=0.5, **options)


def evidence(**options):
    return fw.bayes.evidence(NET, X, Y, noise=0.5, **options)


def rank(**options):
    return fw.bayes.rank({"one": NET}, X, Y, noise=0.5, **options)


def train(**options):
    return fw.train_ensemble(NET, X, Y, X, algorithm=DESCENT, members=4, key=0, **options)


WHERE = {"store": "run.zarr", "client": type("Client", (), {"nthreads": dict})(), "progress": True}
SIZES = {"batch_size": 2, "memory": 1e9}
TASKLESS = [
    (function, {"order": 0, "run": fw.Run(**{name: value})}, f"{name} of fw.Run is for long work")
    for function in (solve, posterior, evidence)
    for name, value in WHERE.items()
]
NOT_DRAWN = [
    (function, {"order": order, "run": fw.Run(**{name: value})}, f"{name} of fw.Run is for batches")
    for function in (solve, posterior, evidence, rank)
    for order in (0, 1)
    for name, value in SIZES.items()
] + [(kernels, {"run": fw.Run(**{name: value})}, f"{name} of fw.Run") for name, value in SIZES.items()]
ELSEWHERE = [
    (function, {"method": method}, "has no meaning")
    for function in (solve, posterior, evidence, train)
    for method in (fw.LegByLeg(), fw.Sampling(), fw.FunctionSpace())
]
WITHOUT_EFFECT = [
    (solve, {"order": 0, "tensors": ("V",)}, "tensors=.* are of order 1/n, and order is 0"),
    (
        solve,
        {"order": 0, "method": fw.Tensors(tolerance=1e-6)},
        "tolerance=1e-06, which does nothing",
    ),
    (solve, {"order": 0, "method": fw.Tensors(remember=False)}, "remember=False, which does nothing"),
    *[
        (function, {"order": 0, "method": fw.Tensors()}, "has no meaning at order 0; leave it out")
        for function in (posterior, evidence, rank)
    ],
    *[
        (function, {"method": method}, "which does nothing in fw.bayes")
        for function in (posterior, evidence, rank)
        for method in (fw.Tensors(remember=False), fw.Tensors(kernel_tolerance=1e-9))
    ],
    (posterior, {"order": 0, "cumulants": True}, "cumulants=True is for order=1"),
    (train, {"method": fw.Stepping(tolerance=1e-6)}, "tolerance=1e-06, which does nothing for algorithm="),
    (train, {"method": fw.Stepping(max_steps=9)}, "max_steps=9, which does nothing for algorithm="),
    (train, {"record": fw.Record(members=True)}, "which needs a store"),
    (train, {"record": fw.Record(at=(3,))}, "at must lie between 0 and the end 2"),
]


@pytest.mark.parametrize("function, options, message", [*TASKLESS, *NOT_DRAWN, *ELSEWHERE, *WITHOUT_EFFECT])
def test_what_cannot_act_is_refused_in_one_sentence(tmp_path, monkeypatch, function, options, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users have it
    with pytest.raises(ValueError, match=message):
        function(**options)
    assert not list(tmp_path.iterdir())  # nothing was begun


def test_no_bar_is_what_there_is_anyway():
    quiet = fw.Run(progress=False)
    assert solve(order=0, run=quiet).order == posterior(order=0, run=quiet).order == 0


def test_accuracies_of_a_solution_act():
    coarse, fine = (solve(method=fw.Tensors(tolerance=t)) for t in (1e-3, 1e-10))
    assert coarse.four_leg_error > fine.four_leg_error


def test_a_record_holds_what_was_asked_for():
    ensemble = train(record=fw.Record(at=(0, 1), ntk=True, kernels=True))
    assert ensemble.points == (0.0, 1.0, 2.0)
    assert ensemble.ntk is not None and ensemble.kernels is not None and train().ntk is None
