"""Command line, runs, reports, figures, adapters and page.

Each figure takes records and returns a matplotlib figure; a script in `examples/` writes it into
`docs/figures/`, and a quick form of the script runs in the tests. `figures/look.py` is the one table of
colours and line styles. `adapters/modules/` measures a model beside the theory's audit of networks like it.

`page/static/` is the page itself: `page.js` requests and answers, `controls.js` controls, tabs and
address, `drawing.js` how a plot is drawn, `plots.js` and `tab_plots.js` the plots, `help.js` the tooltips of
`page/symbols.toml`, `theme.js` light or dark. A tab is a file that answers (`page/answers.py`,
`page/residual.py`, `page/bayes.py`, `page/extrapolation.py`), an order in `page/orders.py` and its plots.
"""
