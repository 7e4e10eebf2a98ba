"""How much networks of one width differ from each other: fluctuations grow as depth over width.

    python examples/fluctuations.py [--output figure.png]

The four-point vertex and the fluctuations of the NTK at two widths, from theory at order 1/n and from sampled
networks. Where depth over width is small, points of both widths follow the line; where they leave it, the
next order in 1/n becomes visible.
"""

from collections.abc import Sequence

from figure_options import figure_options

import finitewidth as fw

X = [[1.0, -1.0]]
DEPTHS = {24: 10, 96: 30}  # width: layers
LAYERS = {24: (3, 6, 10), 96: (4, 12)}  # width: sampled layers
MEMBERS = {24: 8_000, 96: 1_500}


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "fluctuations", arguments)
    theories, sampled = [], []
    for activation in ("tanh",) if options.quick else ("tanh", "relu"):
        for width, depth in DEPTHS.items():
            if options.quick and width > 24:
                continue
            net = fw.MLP.critical((2, *[width] * (depth - 1), 1), activation)
            theories.append(fw.solve(net, X))
            layers, members = (LAYERS[width], MEMBERS[width]) if not options.quick else ((3,), 40)
            sampled += [
                fw.sample_statistics(net, X, members, key=0, layer=layer, tensors=("V", "A", "B"))
                for layer in layers
            ]
    fw.plots.save(fw.plots.fluctuations(theories, sampled), options.output)
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
