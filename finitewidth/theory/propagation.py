r"""The loop over depth at infinite width: K and Theta of all pairs of inputs, layer by layer, in tiles.

$$K' = C_b + C_W \langle\sigma\sigma\rangle_K, \qquad
  \Theta' = \lambda_b + \lambda_W \langle\sigma\sigma\rangle_K + C_W\, \Theta \langle\sigma'\sigma'\rangle_K$$

(PDLT chapters 4 and 8). A pair of samples needs only its own entries and its two variances, so a
step is done in place, tile by tile, and a block of test against training inputs needs no full square.
"""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.linalg.blas import dsyrk  # type: ignore[attr-defined]  # made when scipy is built

from finitewidth.core.cores import SingleThreadedProducts
from finitewidth.core.inputs import coincident_rows
from finitewidth.gaussian.tiles import Tile, for_each, tiles
from finitewidth.gaussian.two_legs.expectation import AbstractExpectation, largest_correlation
from finitewidth.network.network import Network
from finitewidth.theory.layers.interface import AbstractStep, Legs, TileStep, infinite_width

_WORTH_THREADS = 1 << 28  # operations of a product


def layers(
    net: Network, X: np.ndarray, X_other: np.ndarray | None, rule: AbstractExpectation
) -> "Iterator[Propagation]":
    """Kernel and NTK between X and X_other (or X and itself) at layers 1, 2, ..., L, one state in place."""
    steps = [[infinite_width(layer) for layer in block] for block in net.blocks]
    state = Propagation(X, X_other, rule, has_ntk=net.discontinuous is None)
    for block in steps:
        state.advance(block)
        yield state


class Propagation:
    """Kernel and NTK of all pairs of two sets of inputs, moved up one layer at a time, in place.

    Of a symmetric matrix only the tiles on and above the diagonal are kept up to date; `matrices`
    mirrors them.
    """

    @np.errstate(over="ignore", invalid="ignore")  # refused in `advance` with a remedy
    def __init__(
        self, X: np.ndarray, X_other: np.ndarray | None, rule: AbstractExpectation, *, has_ntk: bool
    ):
        self.rule, self.layer, self.error = rule, 0, 0.0
        self.symmetric = X_other is None
        other = X if X_other is None else X_other
        n_0 = X.shape[1]
        self.K = _products(X, other, symmetric=self.symmetric)
        self.tiles = list(tiles(*self.K.shape, symmetric=self.symmetric))
        self.Theta = np.empty_like(self.K) if has_ntk else None
        squares = [np.einsum("ij,ij->i", points, points) / n_0 for points in (X, other)]
        self.coincident = coincident_rows(X, X_other)
        self.K[self.coincident] = n_0 * squares[0][self.coincident[0]]
        if self.symmetric:
            np.fill_diagonal(self.K, n_0 * squares[0])
        # one object for both sides tells the rule that rows and columns are the same legs
        self.variances = (squares[0], squares[0]) if self.symmetric else (squares[0], squares[1])
        self.width = n_0

    @np.errstate(over="ignore", invalid="ignore")
    def advance(self, block: Sequence[AbstractStep]) -> None:
        """Through a block of layers that ends in weights."""
        with SingleThreadedProducts():  # threads that wait for the next product would disturb the tiles
            legs = Legs(*self.variances, self.Theta is not None, self._largest_correlation)
            steps = [step.on_tiles(legs, self.rule) for step in block]
            sides = self.variances[:1] if self.symmetric else self.variances
            variances = [self._behind(block, side) for side in sides] if self._needs_variances else []
            self.error = max(self.error, for_each(lambda tile: self._on_tile(steps, tile), self.tiles))
            self.layer += 1
            self._set_variances(variances or [np.ascontiguousarray(np.diag(self.K))])

    @property
    def _needs_variances(self) -> bool:
        """Whether they cannot be read off the diagonal."""
        return not self.symmetric or self.layer == 0

    def _behind(self, block: Sequence[AbstractStep], variances: np.ndarray) -> np.ndarray:
        for step in block:
            variances = step.of_variances(variances, self.rule)
        return variances

    @np.errstate(over="ignore", invalid="ignore")  # of this thread
    def _on_tile(self, steps: Sequence[TileStep], tile: Tile) -> float:
        out = K = self.K[tile.rows, tile.columns]
        Theta = None if self.Theta is None else self.Theta[tile.rows, tile.columns]
        if self.layer == 0:
            self._start(tile, K, Theta)
        largest = 0.0
        for step in steps:
            K, error = step(K, Theta, out, tile)
            largest = max(largest, error)
        return largest

    def _start(self, tile: Tile, K: np.ndarray, Theta: np.ndarray | None) -> None:
        """From inner products of inputs to their mean products; nothing has learned yet."""
        if self.symmetric and tile.on_diagonal:
            _mirror(self.K, tile)
        K /= self.width
        if Theta is not None:
            Theta[...] = 0.0

    def _set_variances(self, sides: list[np.ndarray]) -> None:
        if not all(np.isfinite(side).all() for side in sides):
            raise ValueError(
                f"the kernel of layer {self.layer} exceeds what double precision holds; scale X or C_W down."
            )
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
