"""Theory with experiment: pulls, control variates, extrapolation, accuracy and claims.

`comparison/compare.py` has pulls, `comparison/control_variates.py` the control variates of infinite width,
`comparison/accuracy.py` the accuracy of both. `comparison/extrapolation.py` trains narrow networks for the
orders that theory does not know: what is left behind order 1/n is fitted with 1/n² and 1/n³
(`experiment/scaling.py`), and the fit is read at the width that was asked for. `comparison/widths.py` adds a
wider width as long as it is worth its cost, `comparison/remainders.py` fits. Three more orders take part with
a size that is expected of them, so that the error contains what the fit neglects.

To add one, write a function below `@claim(...)` in a file of `statements/`: it must compare numbers that
were computed independently. If it is about a recursion, `tests/helpers/claim_faults.py` breaks that
recursion, and names the claim among those that must fail.
"""
