"""neural-tangents 0.6.5 for `prediction.py`: its kernels and the same solve; run by its own Python."""

import functools

import scipy.linalg

from benchmarks.kernels.speed_peer import case_inputs, compiled_kernels
from benchmarks.peer import about_peer, imported_stax, serve

DIMENSION = 784
OUTPUTS = 10


def solved(Theta, X):
    """Theta^-1 y for targets that are the first components of the inputs."""
    factor = scipy.linalg.cho_factor(Theta, lower=True, overwrite_a=True, check_finite=False)
    return scipy.linalg.cho_solve(factor, X[:, :OUTPUTS], check_finite=False)


def main():
    stax = imported_stax()

    @functools.cache
    def prepare(activation, N, depth):
        import numpy as np

        kernels = compiled_kernels(stax, activation, N, depth, DIMENSION)

        def call(X):
            K, Theta = kernels(X)
            return np.asarray(K), solved(np.array(Theta, order="F"), X)

        return call

    draws = functools.partial(case_inputs, dimension=DIMENSION)
    serve(prepare, warm=prepare, about=about_peer(), inputs=draws)


if __name__ == "__main__":
    main()
