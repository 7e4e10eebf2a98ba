"""Second-order updates: one for infinite width, two for finite width."""

from dataclasses import dataclass

import numpy as np

from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.algorithms.projectors import Projectors
from finitewidth.network.algorithms.symbols import Symbols


@dataclass(frozen=True)
class Newton(AbstractAlgorithm):
    """One step of the second-order update that trains an infinitely wide network fully (PDLT 10.27).

    ```python
    fw.predict(net, X, Y, X_test, algorithm=fw.Newton(), order=0).mean
    ```
    """

    motion = "second order"

    @property
    def end(self) -> float:
        return 1.0

    @property
    def is_finished(self) -> bool:
        return True

    def refusal(self, order: int) -> str | None:
        if order == 0:
            return None
        return "algorithm=Newton() lands beside the minimum at finite width; use fw.TwoStep(), or order=0."


@dataclass(frozen=True)
class TwoStep(AbstractAlgorithm):
    """Two second-order updates that train a network of finite width fully (PDLT section inf.2.2).

    ```python
    fw.predict(net, X, Y, X_test, algorithm=fw.TwoStep(), covariance=False).mean
    ```
    """

    motion = "second order"

    @property
    def end(self) -> float:
        return 2.0

    @property
    def is_finished(self) -> bool:
        return True

    def symbols(self, eigenvalues: np.ndarray) -> Symbols:
        return Projectors().symbols(eigenvalues)
