"""Signals and gradients over a hundred layers of critical networks, and the laws that they approach.

    python examples/kernels_over_depth.py [--output figure.png]

One activation of each universality class: the kernel of tanh falls as 1/(2 l), that of relu is constant, and
that of gelu stays at K* if it starts there. Learning rates let every layer contribute equally to the NTK.
"""

from collections.abc import Sequence

from figure_options import figure_options

import finitewidth as fw

ACTIVATIONS = ("tanh", "relu", "gelu")
X = [[1.0, -1.0]]
WIDTH, DEPTH = 128, 100
LAYERS, MEMBERS = (3, 12), 400


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "kernels_over_depth", arguments)
    depth, layers, members = (10, (2,), 40) if options.quick else (DEPTH, LAYERS, MEMBERS)
    names = ACTIVATIONS[:1] if options.quick else ACTIVATIONS
    nets = [fw.MLP.critical((2, *[WIDTH] * (depth - 1), 1), name) for name in names]
    sampled = [
        fw.sample_statistics(net, X, members, key=0, layer=layer, tensors=())
        for net in nets
        for layer in layers
    ]
    theories = [fw.solve(net, X) for net in nets]
    fw.plots.save(fw.plots.kernels_over_depth(theories, sampled), options.output)
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
