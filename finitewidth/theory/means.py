r"""The infinite-width kernel K and NTK Theta, layer by layer, in tiles.

$$K' = C_b + C_W \langle\sigma\sigma\rangle_K, \qquad
  \Theta' = \lambda_b + \lambda_W \langle\sigma\sigma\rangle_K + C_W\, \Theta \langle\sigma'\sigma'\rangle_K$$

(PDLT chapters 4 and 8). A pair of samples needs only its own entries and its two variances, so a
step is done in place, tile by tile, and a block of test against training inputs needs no full square.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.linalg.blas import dsyrk  # type: ignore[attr-defined]  # made when scipy is built

from finitewidth.core.cores import SingleThreadedProducts
from finitewidth.core.inputs import as_inputs, as_number, coincident_rows
from finitewidth.core.memory import require_memory
from finitewidth.core.precision import require_double_precision
from finitewidth.core.storage import read_arrays, write_arrays
from finitewidth.gaussian.tiles import Tile, for_each, tiles
from finitewidth.gaussian.two_legs.expectation import (
    AbstractExpectation,
    Automatic,
    largest_correlation,
    mean_square,
)
from finitewidth.network.mlp import MLP

_WORTH_THREADS = 1 << 28  # operations of a product


@dataclass(frozen=True, eq=False)
class Kernels:
    """Kernel and NTK between two sets of inputs at one layer, at infinite width."""

    net: MLP
    layer: int
    K: Float[np.ndarray, "N M"]
    Theta: Float[np.ndarray, "N M"] | None  # None where the activation has no derivative
    error: float  # largest error of an average, in units of the scale it lives on

    def save(self, path: str | Path) -> None:
        """Write the kernels and the network to one npz file."""
        arrays = {"K": self.K} if self.Theta is None else {"K": self.K, "Theta": self.Theta}
        about = {"network": self.net.to_dict(), "layer": self.layer, "error": self.error}
        write_arrays(path, arrays, {"kind": "kernels", **about})

    @classmethod
    def load(cls, path: str | Path) -> "Kernels":
        """The kernels that `save` wrote."""
        arrays, about = read_arrays(path, kind="kernels")
        try:
            net = MLP.from_dict(about["network"])
            return cls(net, about["layer"], arrays["K"], arrays.get("Theta"), about["error"])
        except KeyError as missing:
            raise ValueError(
                f"{str(path)!r} has no {missing} and is no file of kernels; write it again with save."
            ) from None


class Propagation:
    """Kernel and NTK of all pairs of two sets of inputs, moved up one layer at a time, in place.

    Of a symmetric matrix only the tiles on and above the diagonal are kept up to date; `matrices`
    mirrors them.
    """

    @np.errstate(over="ignore", invalid="ignore")  # refused below with a remedy
    def __init__(self, net: MLP, X: np.ndarray, X_other: np.ndarray | None, rule: AbstractExpectation):
        self.net, self.rule, self.layer, self.error = net, rule, 1, 0.0
        self.symmetric = X_other is None
        other = X if X_other is None else X_other
        n_0 = net.widths[0]
        self.K = _products(X, other, symmetric=self.symmetric)
        self.tiles = list(tiles(*self.K.shape, symmetric=self.symmetric))
        has_slope = net.activation.jump_order >= 1 or net.depth == 1
        self.Theta = np.empty_like(self.K) if has_slope else None
        squares = [np.einsum("ij,ij->i", points, points) / n_0 for points in (X, other)]
        self.coincident = coincident_rows(X, X_other)
        self.K[self.coincident] = n_0 * squares[0][self.coincident[0]]
        if self.symmetric:
            np.fill_diagonal(self.K, n_0 * squares[0])
        for_each(self._start, self.tiles)
        self._set_variances([net.C_b[0] + net.C_W[0] * square for square in squares])

    @np.errstate(over="ignore", invalid="ignore")  # of this thread
    def _start(self, tile: Tile) -> float:
        """From inner products of inputs to the first layer."""
        net = self.net
        K = self.K[tile.rows, tile.columns]
        if self.symmetric and tile.on_diagonal:
            _mirror(self.K, tile)
        K /= net.widths[0]
        if self.Theta is not None:
            Theta = self.Theta[tile.rows, tile.columns]
            np.multiply(K, net.lambda_W[0], out=Theta)
            Theta += net.lambda_b[0]
        K *= net.C_W[0]
        K += net.C_b[0]
        return 0.0

    def _set_variances(self, sides: list[np.ndarray]) -> None:
        if not all(np.isfinite(side).all() for side in sides):
            raise ValueError(
                f"the kernel of layer {self.layer} exceeds what double precision holds; scale X or C_W down."
            )
        # one object for both sides tells the rule that rows and columns are the same legs
        self.variances = (sides[0], sides[0]) if self.symmetric else (sides[0], sides[1])
        self._tie()

    def _tie(self) -> None:
        """One input met twice has correlation one to the last bit; a kink makes 1e-8 of a rounding error."""
        rows, columns = self.coincident
        if rows.size:
            first, second = self.variances
            second[columns] = first[rows]
            first[rows] = second[columns]
            self.K[rows, columns] = first[rows]
            if self.symmetric:
                np.fill_diagonal(self.K, first)

    @np.errstate(over="ignore", invalid="ignore")
    def advance(self) -> None:
        """From layer l to layer l + 1."""
        with SingleThreadedProducts():  # threads that wait for the next product would disturb the tiles
            self._advance()

    def _advance(self) -> None:
        net, layer = self.net, self.layer  # hyperparameters of layer l + 1, counted from zero
        orders = ((0, 0),) if self.Theta is None else ((0, 0), (1, 1))
        evaluate = self.rule.on_tiles(net.activation, *self.variances, orders, self._largest_correlation)

        def work(tile: Tile) -> float:
            averages, error = evaluate(self.K[tile.rows, tile.columns], tile)
            self._update(tile, *averages)
            return error

        if not self.symmetric:
            squares = [mean_square(net.activation, side, self.rule) for side in self.variances]
        self.error = max(self.error, for_each(work, self.tiles))
        self.layer += 1
        if self.symmetric:
            self._set_variances([np.ascontiguousarray(np.diag(self.K))])
        else:
            self._set_variances([net.C_b[layer] + net.C_W[layer] * square for square in squares])

    @np.errstate(over="ignore", invalid="ignore")  # of this thread
    def _update(self, tile: Tile, mean: np.ndarray, slope: np.ndarray | None = None) -> None:
        net, layer = self.net, self.layer
        K = self.K[tile.rows, tile.columns]
        np.multiply(mean, net.C_W[layer], out=K)
        K += net.C_b[layer]
        if self.Theta is not None and slope is not None:
            Theta = self.Theta[tile.rows, tile.columns]
            Theta *= slope
            Theta *= net.C_W[layer]
            Theta += net.lambda_W[layer] * mean
            Theta += net.lambda_b[layer]

    def matrices(self) -> tuple[np.ndarray, np.ndarray | None]:
        """K and Theta, exactly symmetric where they should be; they go on changing with `advance`."""
        if self.symmetric:
            for matrix in (self.K, self.Theta):
                if matrix is not None:
                    for tile in self.tiles:
                        _mirror(matrix, tile)
        if self.Theta is not None and not np.isfinite(self.Theta).all():
            raise ValueError(
                f"the NTK of layer {self.layer} exceeds what double precision holds; scale X, C_W or "
                "lambda_W down."
            )
        return self.K, self.Theta

    def _largest_correlation(self) -> float:
        """Between different samples, so that a series need not be longer than the data ask for."""
        sigma = [np.sqrt(side) for side in self.variances]
        return max(
            largest_correlation(
                self.K[tile.rows, tile.columns],
                sigma[0][tile.rows],
                sigma[1][tile.columns],
                diagonal=self.symmetric and tile.on_diagonal,
            )
            for tile in self.tiles
        )


def _products(X: np.ndarray, other: np.ndarray, *, symmetric: bool) -> np.ndarray:
    """Inner products of inputs; of a symmetric matrix those on and above the diagonal."""
    if not symmetric:
        return X @ other.T
    # half the operations, and the other half is neither filled nor touched
    small = X.size * X.shape[0] < _WORTH_THREADS
    with SingleThreadedProducts() if small else contextlib.nullcontext():
        return dsyrk(1.0, X.T, trans=1, lower=1).T


def _mirror(matrix: np.ndarray, tile: Tile) -> None:
    if tile.on_diagonal:
        upper = np.triu(matrix[tile.rows, tile.columns], 1)
        diagonal = np.diag(np.diag(matrix[tile.rows, tile.columns]))
        matrix[tile.rows, tile.columns] = upper + upper.T + diagonal
    else:
        matrix[tile.columns, tile.rows] = matrix[tile.rows, tile.columns].T


def check_tolerance(name: str, value) -> None:
    """Tolerances are fractions."""
    if not 0 < as_number(value) < 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value!r}.")


def accuracy_or_error(error: float, tolerance: float, name: str | None) -> None:
    """Refuse results whose averages are much worse than was asked for."""
    if error > 100 * tolerance:
        raise ValueError(
            f"the averages of activation {name!r} reach an accuracy of {error:.1e} only, not tolerance="
            f"{tolerance:g}; ask for tolerance={2 * error:.0e} or lower the variances (C_W, inputs)."
        )


def kernels(net: MLP, X, X_other=None, *, layer: int | None = None, tolerance: float = 1e-12) -> Kernels:
    """Kernel and NTK between X and X_other (or X and itself) at one layer, the output by default.

    Nothing but the two matrices of that layer is stored: memory is bounded by them and a few tiles.
    """
    require_double_precision()
    check_tolerance("tolerance", tolerance)
    X = as_inputs(X, net.widths[0])
    other = None if X_other is None else as_inputs(X_other, net.widths[0], name="X_other")
    layer = net.depth if layer is None else layer
    check_layer(layer, net.depth)
    columns = X.shape[0] if other is None else other.shape[0]
    require_memory(
        5 * 8 * X.shape[0] * columns,
        f"a kernel of {X.shape[0]} x {columns} pairs",
        "pass fewer inputs at a time",
    )
    state = Propagation(net, X, other, Automatic(tolerance))
    for _ in range(layer - 1):
        state.advance()
    accuracy_or_error(state.error, tolerance, net.activation.name)
    return Kernels(net, layer, *state.matrices(), state.error)


def check_layer(layer: int, depth: int) -> None:
    """Layers are numbered 1 to L."""
    if not (isinstance(layer, int | np.integer) and 1 <= layer <= depth):
        raise ValueError(f"layer must be a whole number from 1 to {depth}, got {layer!r}.")
