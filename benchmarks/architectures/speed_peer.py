"""neural-tangents 0.6.5 for `speed.py`: kernels of any network that it has; run by its own Python.

A network is described by plain numbers and strings, in the form that `fw.Network.to_dict` writes. The two
libraries have other names and conventions for one and the same layer; `Builder` is where they meet.
"""

import functools
import json
import math

import numpy as np

from benchmarks.peer import about_peer, imported_stax, serve

DEFAULTS = {
    "lambda_b": 1.0,
    "lambda_W": 1.0,
    "C_b": 0.0,
    "C_W": 1.0,
}  # of finitewidth, where nothing is written


def inputs(case, draw):
    """Standard normal inputs of a case (network as JSON text, N)."""
    shape = json.loads(case[0])["input_shape"]
    return np.random.default_rng(draw).standard_normal((case[1], *shape))


class Builder:
    """Layers of neural-tangents from their descriptions.

    Its learning rates are those of one of two parametrizations: "ntk" has lambda_W = C_W and lambda_b = C_b,
    "standard" has lambda_W = fan-in and lambda_b = 1. Other rates are refused.
    """

    def __init__(self, stax):
        self.stax = stax

    def kernel_function(self, network):
        """Its function of two sets of inputs that gives K ("nngp") and Theta ("ntk")."""
        return self.serial(network["layers"], tuple(network["input_shape"]))[0][2]

    def serial(self, layers, shape):
        """A sequence of layers, and the shape of a sample behind it."""
        built = []
        for layer in layers:
            one = self.layer(layer, shape)
            built.append(one)
            shape = self.shape_behind(one, shape)
        return (self.stax.serial(*built) if built else self.stax.Identity()), shape

    def shape_behind(self, layer, shape):
        """What its init_fn says of the shape, without drawing weights."""
        import jax

        behind = []
        jax.eval_shape(lambda key: behind.extend(layer[0](key, (1, *shape))[0]), jax.random.PRNGKey(0))
        return tuple(behind[1:])

    def layer(self, layer, shape):
        """One layer that follows samples of this shape, positions and then channels."""
        if isinstance(layer, str):
            return self.activation(layer)
        axes = len(shape) - 1
        return getattr(self, layer["kind"])({k: v for k, v in layer.items() if k != "kind"}, shape, axes)

    # --- elementwise layers --------------------------------------------------------------------------

    def activation(self, text):
        name, _, listed = text.rstrip(")").partition("(")
        numbers = [float(part) for part in listed.split(",") if part.strip()]
        stax = self.stax
        known = {
            "relu": stax.Relu,
            "leaky_relu": lambda slope=0.01: stax.LeakyRelu(slope),
            "scale_invariant": lambda plus, minus: stax.ABRelu(minus, plus),
            "erf": stax.Erf,
            "gelu": stax.Gelu,
            "sin": stax.Sin,
            "monomial": lambda degree: stax.Monomial(int(degree)),
            "polynomial": lambda *coefficients: stax.Polynomial(coefficients),
        }
        if name not in known:
            raise SystemExit(f"neural-tangents has no closed form for the activation {text!r}.")
        return known[name](*numbers)

    def Dropout(self, fields, shape, axes):
        return self.stax.Dropout(1 - fields.get("drop", 0.1))  # its rate is the probability to keep

    def LayerNorm(self, fields, shape, axes):
        if fields.get("lambda_gain", 0) or fields.get("lambda_offset", 0):
            raise SystemExit("LayerNorm of neural-tangents has no gain and no offset.")
        over = tuple(range(1, axes + 2)) if fields.get("axes", "channels") == "all" else -1
        return self.stax.LayerNorm(axis=over, eps=fields.get("epsilon", 1e-5))

    # --- layers with weights -------------------------------------------------------------------------

    def Dense(self, fields, shape, axes):
        return self.stax.Dense(fields["width"], **_rates(fields, fan_in=shape[-1]))

    def Conv(self, fields, shape, axes):
        taps = _each(fields.get("filter", 3), axes)
        return self.stax.Conv(
            fields["width"],
            taps,
            strides=_each(fields.get("stride", 1), axes),
            padding=_padding(fields.get("padding", "same")),
            **_rates(fields, fan_in=shape[-1] * math.prod(taps)),
        )

    def SelfAttention(self, fields, shape, axes):
        if fields.get("scaling", "linear") != "linear":
            raise SystemExit("neural-tangents has no kernel for attention with root scaling.")
        C_b = fields.get("C_b", 0.0)
        return self.stax.GlobalSelfAttention(
            n_chan_out=fields["width"],
            n_chan_key=1,
            n_chan_val=1,
            n_heads=1,
            linear_scaling=True,
            W_key_std=fields.get("sigma_QK", 1.0),
            W_out_std=math.sqrt(fields.get("C_OV", 1.0)),
            b_std=math.sqrt(C_b) if C_b else None,
            **_positions(fields.get("positions")),
        )

    # --- layers that gather positions ----------------------------------------------------------------

    def AveragePool(self, fields, shape, axes):
        window = _each(fields["window"], axes)
        return self.stax.AvgPool(
            window,
            strides=_each(fields.get("stride") or window, axes),  # its own default is 1
            padding=_padding(fields.get("padding", "valid")),
            normalize_edges=not fields.get("count_padding", True),
        )

    def GlobalAveragePool(self, fields, shape, axes):
        return self.stax.GlobalAvgPool()

    def Flatten(self, fields, shape, axes):
        return self.stax.Flatten()

    # --- branches ------------------------------------------------------------------------------------

    def Residual(self, fields, shape, axes):
        stax, gamma = self.stax, fields.get("gamma", 1.0)
        body, _ = self.serial(fields["layers"], shape)
        skip, _ = self.serial(fields.get("shortcut", []), shape)
        if gamma != 1:
            skip = stax.serial(skip, stax.DotGeneral(rhs=gamma))  # a constant factor
        return stax.serial(stax.FanOut(2), stax.parallel(body, skip), stax.FanInSum())


def _each(value, axes):
    """One number for each axis of positions, as a tuple: lists raise in neural-tangents."""
    return tuple(value) if isinstance(value, list | tuple) else (value,) * axes


def _padding(padding):
    if not isinstance(padding, str):
        raise SystemExit("neural-tangents pads by words only: same, valid, circular.")
    return padding.upper()


def _rates(fields, fan_in):
    """Standard deviations and the parametrization that has these learning rates."""
    C_b, C_W, lambda_b, lambda_W = (
        {**DEFAULTS, **fields}[name] for name in ("C_b", "C_W", "lambda_b", "lambda_W")
    )
    weights, bias = math.sqrt(C_W), math.sqrt(C_b)
    if (lambda_b, lambda_W) == (C_b, C_W):
        return {"W_std": weights, "b_std": bias or None, "parameterization": "ntk"}
    if lambda_W == fan_in and lambda_b == 1:
        return {"W_std": weights, "b_std": bias, "parameterization": "standard"}
    if lambda_W == fan_in and lambda_b == C_b == 0:
        return {"W_std": weights, "b_std": None, "parameterization": "standard"}
    raise SystemExit(f"neural-tangents has no parametrization with the learning rates of {fields}.")


def _positions(fields):
    """Random features of positions, in keys and queries only, which is its default."""
    if fields is None:
        return {}
    import jax.numpy as jnp

    length = fields.get("length", 0.0)
    return {
        "pos_emb_type": {"sum": "SUM", "concatenate": "CONCAT"}[fields.get("mixing", "sum")],
        "pos_emb_decay_fn": (lambda squares: jnp.exp(-squares / (2 * length**2))) if length else None,
        "W_pos_emb_std": math.sqrt(fields.get("variance", 1.0)),
    }


def kernel_function(network):
    """Its kernel function of a network."""
    return Builder(imported_stax()).kernel_function(network)


def compiled_kernels(stax, text, N):
    """Its kernel function compiled as a whole for these inputs, which is the fastest way to call it."""
    import jax

    kernel_fn = Builder(stax).kernel_function(json.loads(text))
    both = jax.jit(lambda x: tuple(kernel_fn(x, None, ("nngp", "ntk"))))
    compiled = both.lower(inputs((text, N), 0)).compile()
    return lambda X: jax.block_until_ready(compiled(X))


def main():
    """Answer requests with neural-tangents."""
    prepare = functools.cache(functools.partial(compiled_kernels, imported_stax()))
    serve(prepare, warm=prepare, about=about_peer(), inputs=inputs)


if __name__ == "__main__":
    main()
