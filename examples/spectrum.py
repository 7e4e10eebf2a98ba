"""How fast each mode of a data set is learned: the spectrum of the training NTK on handwritten digits.

python examples/spectrum.py [--output figure.png]
"""

from collections.abc import Sequence

from figure_options import figure_options
from sklearn.datasets import load_digits

import finitewidth as fw


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "spectrum", arguments)
    images = load_digits(return_X_y=True)[0][: 30 if options.quick else 200]
    spectrum = fw.textbook.spectrum(fw.MLP.critical((64, 1, 1, 1, 1), "tanh"), images / images.std())
    fw.plots.save(fw.plots.spectrum(spectrum), options.output)
    print(f"condition {spectrum.condition:.3g}, learning rate below {spectrum.largest_learning_rate:.3g}")
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
