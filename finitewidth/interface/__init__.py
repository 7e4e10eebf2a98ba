"""Command line, runs, reports, figures, adapters and page.

Each figure takes records and returns a matplotlib figure; a script in `examples/` writes it into
`docs/figures/`, and a quick form of the script runs in the tests. `torch_graph.py` traces a module to its
chain of linear layers or names what prevents it, `torch_activations.py` recognizes activations by the
values that they compute, `torch_audit.py` measures a model beside the theory's audit of networks like it.
`page/static/` is the page itself: `page.js` requests and answers, `controls.js` controls, tabs and
address, `drawing.js` how a plot is drawn with the styles of `look.py`, `plots.js` and `tab_plots.js` the
plots, `help.js` the tooltips of `symbols.toml`, `theme.js` light or dark. A tab is a file that answers
(`answers.py`, `residual.py`, `bayes.py`, `extrapolation.py`), an order in `orders.py` and its plots.

- cli/claims.py, interface/report/claims.py: the command and its tables
- cli/interrupts.py: Ctrl-C and SIGTERM: a thread says what is kept and ends the process, whatever the
  main thread is doing
"""
