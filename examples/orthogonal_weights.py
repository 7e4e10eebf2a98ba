"""What orthogonal weights buy: fluctuations of tanh networks saturate, those of relu grow more slowly.

    python examples/orthogonal_weights.py [--output figure.png]

V, A and B of one input over the depth of critical networks, with Gaussian and with orthogonal weights; real
networks on top.
"""

from collections.abc import Sequence

from figure_options import figure_options

import finitewidth as fw

X = [[1.0, -1.0, 0.5, 1.3]]
WIDTH, DEPTH = 64, 40
LAYERS, MEMBERS = (4, 16), 1500


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "orthogonal_weights", arguments)
    depth, layers, members = (6, (3,), 40) if options.quick else (DEPTH, LAYERS, MEMBERS)
    nets = [
        fw.MLP.critical((4, *[WIDTH] * (depth - 1), 1), activation, weights=weights)
        for activation in (("tanh",) if options.quick else ("tanh", "relu"))
        for weights in ("gaussian", "orthogonal")
    ]
    names = ("V", "A", "B")
    theories = [fw.solve(net, X) for net in nets]
    sampled = [
        fw.sample_statistics(net, X, members, key=0, layer=layer, tensors=names)
        for net in nets
        for layer in layers
    ]
    fw.plots.save(fw.plots.fluctuations(theories, sampled, tensors=names), options.output)
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
