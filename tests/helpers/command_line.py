"""The command line called in the process of a test, and a small run for it."""

import pytest

from finitewidth.interface.cli import main as cli

RUN = """
[network]
widths = [2, 6, 6, 1]
activation = "tanh"
critical = true

[data]
train_inputs = [[1.0, 0.5], [-0.5, 2.0], [0.25, -0.75]]
train_targets = [0.5, -0.5, 1.0]
test_inputs = [[0.5, 1.0], [-1.0, 0.2]]
test_targets = [0.1, 0.2]

[training]
algorithm = "gradient_descent"
learning_rate = 0.05
steps = 4

[ensemble]
members = 40
key = 3
batch_size = 8
"""


def call(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stop:
        cli.main([str(argument) for argument in arguments])
    return int(stop.value.code or 0)


def error_line(capsys, *arguments: object) -> str:
    """The one line on stderr that comes with status 2."""
    assert call(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("finitewidth: ")
    return err
