"""What belongs to single sections of PDLT: few inputs, linear models, spectra of the training NTK."""

from finitewidth.training.first_order.inductive_bias import inductive_bias
from finitewidth.training.infinite.spectrum import spectrum
from finitewidth.training.textbook.delta_expansion import delta_expansion
from finitewidth.training.textbook.finite_angle import finite_angle
from finitewidth.training.textbook.generalization import neighbour
from finitewidth.training.textbook.linear import (
    fit_kernel_machine,
    fit_linear_model,
    random_features,
    with_constant,
)
from finitewidth.training.textbook.starpolation import starpolate

__all__ = [
    "delta_expansion",
    "finite_angle",
    "fit_kernel_machine",
    "fit_linear_model",
    "inductive_bias",
    "neighbour",
    "random_features",
    "spectrum",
    "starpolate",
    "with_constant",
]
