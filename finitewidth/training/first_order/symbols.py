"""Former address of the symbols, for modules that have not followed yet."""

from finitewidth.network.algorithms.symbols import Symbols

__all__ = ["Symbols", "fingerprint", "symbols"]


def symbols(algorithm, eigenvalues) -> Symbols:
    return algorithm.symbols(eigenvalues)


def fingerprint(algorithm) -> str:
    return algorithm.fingerprint()
