"""The Python that computes what a tab of the page shows."""

from finitewidth.interface.page import problem
from finitewidth.interface.page.extrapolation import narrow_widths
from finitewidth.interface.page.values import BadValues, Values

_TARGETS = {"sine": "np.sin(2 * x)", "line": "x", "parabola": "x**2 - 0.5", "step": "np.sign(x)"}
_IMPORTS = "import numpy as np\nimport finitewidth as fw\n\n"


def python_code(values: Values) -> str:
    """A script that prints the numbers of the plots in sight."""
    if values.tab == "residual":
        return _IMPORTS + _residual(values)
    answer = {"network": _trained, "bayes": _posterior, "extrapolation": _beyond}[values.tab]
    return _IMPORTS + _network(values) + _data(values) + answer(values)


def _residual(values: Values) -> str:
    shape = f'"{values.activation}", width={values.width}, gamma={values.gamma:g}'
    return (
        f"reach = fw.critical.aspect({shape})\n"
        "print(reach.depth, reach.C_b, reach.C_W)  # layers up to which order 1/n is trusted\n"
    )


def _network(values: Values) -> str:
    widths = f"(2, *[{values.width}] * {values.depth - 1}, 1)"
    rates = {"lambda_b": values.lambda_b, "lambda_W": values.lambda_W}
    more = "".join(f", {name}={rate:g}" for name, rate in rates.items() if rate != 1)
    if values.weights != "gaussian":
        more += f', weights="{values.weights}"'
    if values.start == "own":
        more = f", C_b={values.C_b!r}, C_W={values.C_W!r}{more}"
    make = "MLP" if values.start == "own" else "MLP.critical"
    return f'net = fw.{make}({widths}, "{values.activation}"{more})\n'


def _data(values: Values) -> str:
    return (
        "\n\ndef circle(x):  # the input of the network at the angle x\n"
        "    return np.sqrt(2) * np.stack([np.cos(x), np.sin(x)], axis=1)\n\n\n"
        f"x = np.linspace(-1.05, 1.05, {values.points})\n"
        f"X, Y = circle(x), ({_TARGETS[values.target]})[:, None]\n"
        "X_test = circle(np.linspace(-1.5, 1.5, 13))\n"
    )


def _algorithm(values: Values) -> str:
    match values.algorithm:
        case "flow":
            return "fw.GradientFlow()"
        case "flow_time":
            return f"fw.GradientFlow({values.time!r})"
        case "descent":
            return f"fw.GradientDescent({values.learning_rate!r}, steps={values.steps})"
    return "fw.TwoStep()"


def _order(values: Values) -> str:
    """Infinite width where an activation has a kink, as in the plots."""
    try:
        kinked = problem.network(values).kinked is not None
    except BadValues:  # there is no such network: the code raises the same error
        kinked = False
    return ", order=0" if kinked else ""


def _trained(values: Values) -> str:
    order = _order(values)
    theory = (
        f"training = {_algorithm(values)}\n"
        f"p = fw.predict(net, X, Y, X_test, algorithm=training{order})\n"
        "print(np.column_stack([p.mean, p.std]))\n"
    )
    if not order:
        theory += "print(p.infinite_width.mean, p.uncertainty, p.verdict)\n"
    return theory + (
        "\nnetworks = fw.train_ensemble(\n"
        f"    net, X, Y, X_test, algorithm=training, members={values.members}, key=0\n)\n"
        "print(fw.compare(p, networks))\n"
    )


def _posterior(values: Values) -> str:
    return (
        f"posterior = fw.bayes.posterior(net, X, Y, X_test, noise={values.noise!r}{_order(values)})\n"
        "print(np.column_stack([posterior.mean, posterior.std]))\n"
        f"print(fw.bayes.evidence(net, X, Y, noise={values.noise!r}{_order(values)}).value)\n"
    )


def _beyond(values: Values) -> str:
    return (
        "there = fw.extrapolate(\n"
        f"    net, X, Y, X_test, algorithm={_algorithm(values)}, widths={narrow_widths(values.depth)}, "
        f"members={values.members}, key=0\n"
        ")\n"
        "print(there.mean.value, there.mean.stderr)\n"
    )
