"""`finitewidth criticality` and `finitewidth audit`: advice on initialization, depth and width."""

from typing import Annotated

import typer

from finitewidth.interface.cli.conventions import AsJson, Debug, complain, plain_errors, print_json

ActivationName = Annotated[
    str,
    typer.Argument(
        metavar="NAME|MODULE:FUNCTION",
        help="A named activation, or your own function.",
        show_default=False,
    ),
]
Fit = Annotated[bool, typer.Option("--fit", help="Also fit the exponents to a deep network (seconds).")]


def criticality(
    activation: ActivationName, as_json: AsJson = False, fit: Fit = False, debug: Debug = False
) -> None:
    """Universality class, critical initialization and exponents of an activation, and recommended settings.

    Example: finitewidth criticality gelu

    A function of z, written with jax.numpy in my_module.py: finitewidth criticality my_module:my_function
    """
    with plain_errors(debug):
        _criticality(activation, as_json, fit)


def _criticality(name: str, as_json: bool, fit: bool) -> None:
    from rich.console import Console

    with Console(stderr=True).status("classifying"):
        from finitewidth.critical.activations.classification import criticality as classify
        from finitewidth.critical.fitted_exponents import exponents
        from finitewidth.interface.cli import arguments
        from finitewidth.interface.report import advice

        activation, notes = arguments.activation_named(name)
        point = classify(activation)
        fitted = exponents(activation) if fit and point.exponents else {}
    for note in notes:
        complain(note)
    if as_json:
        print_json(advice.criticality_document(point, fitted))
    else:
        advice.print_criticality(point, fitted, Console())


Widths = Annotated[
    str | None,
    typer.Argument(
        metavar="WIDTHS|RUN.toml",
        help="n_0, ..., n_L such as 784,100x20,10 (twenty hidden layers of 100), or a file with \\[network]; "
        "without it, that network with relu and the initialization of PyTorch.",
        show_default=False,
    ),
]
OfActivation = Annotated[
    str,
    typer.Option(
        "--activation",
        help="A name or module:function, or one for each hidden layer, separated by commas.",
    ),
]
PerLayer = "A number, or one for each layer, separated by commas."


def audit(
    widths: Widths = None,
    activation: OfActivation = "relu",
    C_b: Annotated[str, typer.Option("--C_b", help=f"Variance of biases. {PerLayer}")] = "0",
    C_W: Annotated[str, typer.Option("--C_W", help=f"Variance of weights times fan-in. {PerLayer}")] = "1",
    lambda_b: Annotated[str, typer.Option("--lambda_b", help=f"Learning rate of biases. {PerLayer}")] = "1",
    lambda_W: Annotated[str, typer.Option("--lambda_W", help=f"Learning rate of weights. {PerLayer}")] = "1",
    weights: Annotated[
        str,
        typer.Option("--weights", help="gaussian or orthogonal, or one for each layer, separated by commas."),
    ] = "gaussian",
    input_scale: Annotated[
        float, typer.Option("--input-scale", help="Mean square of the input components.")
    ] = 1.0,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Do signals and gradients survive the depth of a network, and is its width enough?

    Names what explodes or vanishes and at which layer, and recommends other settings. Networks of any layers
    are read from a file, as fw.Network.to_toml writes it.

    Example: finitewidth audit 784,100x20,10 --activation tanh --C_W 1.5
    """
    options = {"C_b": C_b, "C_W": C_W, "lambda_b": lambda_b, "lambda_W": lambda_W, "weights": weights}
    with plain_errors(debug):
        _audit(widths, activation, options, input_scale, as_json)


_DEFAULTS = {"C_b": "0", "C_W": "1", "lambda_b": "1", "lambda_W": "1", "weights": "gaussian"}
_DEFAULTS |= {"input-scale": "1"}


def _refuse_without_widths(options: dict[str, str]) -> None:
    for name, default in _DEFAULTS.items():
        if options[name] != default:
            raise ValueError(f"WIDTHS is missing, and --{name} needs it; write 784,100x20,10 for example.")


def _audit(
    widths: str | None, activation: str, options: dict[str, str], input_scale: float, as_json: bool
) -> None:
    from rich.console import Console

    with Console(stderr=True).status("auditing"):
        from finitewidth.critical.audit import audit as examine
        from finitewidth.interface.cli import arguments
        from finitewidth.interface.report import advice

        if widths is None:
            _refuse_without_widths(options | {"input-scale": f"{input_scale:g}"})
            net, notes = arguments.network_of_pytorch(activation)
        else:
            net, notes = arguments.network_described(widths, activation, options, input_scale)
        verdict = examine(net, input_scale=input_scale)
    for note in notes:
        complain(note)
    if as_json:
        print_json(advice.audit_document(verdict))
    else:
        advice.print_audit(verdict, Console())
