"""Real networks, sampled and trained, by nothing that the theory uses beyond `core` and `network`.

Everything about real networks is vectorized over members and compiled, in double precision. Randomness is
a pure function: member m has the key `fold_in(key, m)` and takes its parameters from that stream alone
(`experiment/sampling.py`), so it is the same network in every batch, on every device and worker.

A layer in `experiment/layers/` draws its parameters and applies itself; derivatives then follow by
automatic differentiation. Where they have structure it moves them through itself by hand: gradients of a
dense layer are kept as outer products and directions are sent through, which is much faster. A `sequence`
of layers is itself a layer, and so is a residual block, whose derivatives are sums of those of its two
sides: residual perceptrons keep the fast differentials. Elementwise layers (`elementwise.py`) and linear
maps without parameters (`linear.py`) have them too. Convolutions, norms and attention use automatic
differentiation, which structure did not beat for convolutions of images; weights that many neurons share
at few positions sum the NTK over pairs of positions (`sites.py`), which took an eighth of the time at
width 128 and 6 positions. `experiment/directions.py` has NTK, dNTK and ddNTKs of one network; automatic
differentiation and the exact layer-to-layer equations check it to 1e-10 in the tests.

Choices that real networks make:

- A convolution is a product of patches with weights. With other weights in each member this takes a third
  of the CPU time of XLA's convolution in double precision (forward 0.04 s against 0.14 s, with gradients
  0.15 s against 0.67 s: 16 members, 8 samples, 8x8, 64 channels).
- Gain and offset of a `LayerNorm` are always parameters, one of each for a channel, whether or not they
  learn.
- `Dropout` has one number as a parameter, from which its masks are drawn, one mask for each row of the
  inputs. A network with its masks is a fixed function, so that outputs and NTK can be sampled; equal
  inputs of `sample_statistics` share a mask. `train_ensemble`, `fw.empirical.ntk` and
  `fw.empirical.taylor` refuse it by name, since training draws new masks at every step.
- Parameters that do not learn (tied keys and positions of `SelfAttention`, masks) have rate zero, and
  their gradients are not computed for the NTK.

Any function. `fw.empirical.ntk` and `taylor` take a function of parameters and inputs, such as a model of
Equinox or Flax, or a network (`experiment/functions.py`). The NTK is computed in blocks of samples that
fit into memory (`experiment/empirical.py`, `experiment/ntk_blocks.py`): by products of gradients, or by
derivatives along the gradients of the rows, whichever takes fewer operations by the compiler's count; for
a network by its structured layers.

`experiment/taylor.py` has the linear, quadratic and cubic models of networks and of functions, by one
mechanism.

Statistics. `sample_statistics` averages products of outputs, NTKs and their differentials over pairs of
different neurons, which singles out one delta structure each, and forms products of means from pairs of
different networks: every estimate is unbiased (`experiment/correlators.py`). The layer is sampled with
eight neurons whatever its width, the differentials with two of them. Where a skip ends in the layer its
statistics depend on its width, which is that of the stream: then the width stays, and the first eight
neurons are used. Standard errors are the spread between batches.

Bayes' rule. `fw.bayes.sample` (`experiment/weighted.py`) draws networks of the prior and weights them by
their likelihood. The last layer is integrated exactly, and neurons of wide dense layers are drawn instead
of weights, since they are independent Gaussian vectors given the layer below.

Members that diverge are counted, reported in a warning and in the record, and left out of every estimate;
if all diverge, an error names the largest stable learning rate.
"""
