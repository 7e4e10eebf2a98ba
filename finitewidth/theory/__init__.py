"""Statistics of a network at initialization, at infinite width and through order 1/n.

Networks of dense layers have one loop over depth, `over_depth` in `theory/steps.py`. It adds and
multiplies what it gets: matrices of pairs at order 1/n, scalars of one input
(`theory/one_input_with_skips.py`, `critical/one_input.py`), or expansions in the distance of two inputs
(`training/textbook/`). Weights act by `behind_weights` in `theory/layers/dense.py`, also in
`theory/one_input.py`, the fast path at order 1/n for one input and thousands of layers, one compiled
scan. At order 1/n a record holds the statistics of layer l and a pure function takes it to layer l + 1.

The tensors of order 1/n (notation) are matrices between a row pair and a column pair of samples. Each is
the average of a row feature and a column feature of one neuron, tied by factors of Theta, and one law
moves them all: `X' = source + r R X C^T`, with sparse maps R and C.

Skip connections. A residual network is dense layers with skips between them (`network/ladder.py`). A skip
adds gamma² times the old K, Theta and features. But the recursion above does not close on it: a neuron
remembers its own past, so that features of different layers of one *stream* (layers linked by skips) are
correlated. `theory/streams.py` therefore sums over pairs of source layers, with four-leg averages of two
layers (`four_legs/two_layers.py`), and dense networks keep the recursion, to which the sum reduces
without skips. `fw.Tensors(remember=False)` keeps what can be said with pairs alone. It is exact for
streams that are read linearly, x + W₂σ(W₁x), and otherwise off by 10 to 200 percent.
`fw.Tensors(remember=8)` is the way between: an average of two layers is a sum over the number of lines
between their pairs of legs, and `theory/truncated_memory.py` carries each term from layer to layer with
averages of two legs only. The sum over pairs takes a time that grows faster than the square of the depth,
this one as the depth. What more lines would add is estimated from the last ones and reported
(`theory.memory_error`). It is not chosen by itself, because for few layers the exact sum costs little and
for many its error is one to ten percent rather than 1e-8. Order 1/n of shortcuts with weights, or of
skips that start behind an activation, is refused by name.

With kinks, P, Q, R, S, T, U exist only below the first kinked activation; a smooth activation above it
does not bring them back. Skips do not either: averages of their features in two different layers would be
finite, since a neuron's past and present are different legs, but each tensor also has the average within
the layer of the kink, which is not. K, Theta, V, D, A, F, B, G1 and H1 exist where they do in dense
networks. G1 and H1 get what a neuron does to itself, which has delta functions and their derivatives on
legs of the upper layer. They are taken from the Gaussian by integration by parts, given the lower layer,
and the error grows as the inverse of what the weights add to the skip. One input takes closed Hermite
coefficients of two straight lines (`theory/one_input_with_skips.py`), and other kinks the sum over pairs.
"""
