"""What a child process of the page does for an order."""

from collections.abc import Callable

from finitewidth.interface.page import answers, bayes, ensembles, extrapolation, residual
from finitewidth.interface.page.values import BadValues, Values


def work(order: dict, tell: Callable[[dict], None]) -> None:
    """Answer an order with lines, the last of which has the key `finished`."""
    values = Values(**order["values"])
    try:
        match order["do"]:
            case "finite":
                tell({"result": answers.finite(values, order["part"])})
            case "bayes":
                tell({"result": bayes.bayes(values)})
            case "residual":
                tell({"result": residual.residual(values)})
            case "extrapolation":
                extrapolation.beyond(values, tell)
            case _:
                ensembles.train(values, tell)
        tell({"finished": True})
    except BadValues as error:
        tell({"finished": True, "errors": error.errors})
    except ValueError as error:
        tell({"finished": True, "errors": {_field(str(error)): str(error)}})


def _field(message: str) -> str:
    return "learning_rate" if message.startswith("learning_rate") else "regression"
