"""neural-tangents 0.6.5 for `speed.py`: kernels of fully connected networks; run by its own Python."""

import functools

import numpy as np

from benchmarks.peer import about_peer, imported_stax, serve

INPUT_DIMENSION = 64
WEIGHT_STD, BIAS_STD = 1.5, 0.1  # C_W = 2.25, C_b = 0.01
DEGREE = 25  # nodes per axis of the numerical layer, the number that its documentation starts from


def inputs(count, draw=0, dimension=INPUT_DIMENSION):
    """Standard normal inputs; the first of many are the same as few."""
    return np.random.default_rng(draw).standard_normal((count, dimension))


def case_inputs(case, draw, dimension=INPUT_DIMENSION):
    """Inputs of a case (activation, N, depth)."""
    return inputs(case[1], draw, dimension)


def _layers(stax):
    """Constructors of its nonlinear layers."""
    import jax
    import jax.numpy as jnp

    functions = {
        "tanh": jnp.tanh,
        "swish": lambda z: z * jax.nn.sigmoid(z),
        "user": lambda z: z * jnp.exp(-z * z / 2),
    }
    numerical = {
        name: functools.partial(stax.ElementwiseNumerical, function, deg=DEGREE)
        for name, function in functions.items()
    }
    return {"relu": stax.Relu, "erf": stax.Erf, "gelu": stax.Gelu, **numerical}


def compiled_kernels(stax, activation, N, depth, dimension=INPUT_DIMENSION):
    """Its kernel function compiled as a whole for these inputs, which is the fastest way to call it."""
    import jax

    dense = functools.partial(stax.Dense, W_std=WEIGHT_STD, b_std=BIAS_STD, parameterization="ntk")
    hidden = [layer for _ in range(depth - 1) for layer in (dense(1), _layers(stax)[activation]())]
    kernel_fn = stax.serial(*hidden, dense(1))[2]
    both = jax.jit(lambda x: tuple(kernel_fn(x, None, ("nngp", "ntk"))))
    compiled = both.lower(inputs(N, dimension=dimension)).compile()
    return lambda X: jax.block_until_ready(compiled(X))


def main():
    """Answer requests with neural-tangents."""
    prepare = functools.cache(functools.partial(compiled_kernels, imported_stax()))
    serve(prepare, warm=prepare, about=about_peer(), inputs=case_inputs)


if __name__ == "__main__":
    main()
