"""A child process that works for the page: `python -m finitewidth.interface.page.child`.

It reads orders from its standard input, one line of JSON each, and answers each with lines of JSON, the last
of which has the key `finished`. It ends when its input closes, which happens when the server ends or is
killed. The library is imported behind that, since this takes seconds, in which a server may end.
"""

import json
import os
import queue
import sys
import threading
from collections.abc import Callable


def main() -> None:
    # the lines have a descriptor of their own, so that text printed by libraries does not come between them
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    orders: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    work = _loaded()
    while True:
        work(
            json.loads(orders.get()),
            lambda line: print(json.dumps(line, allow_nan=False), file=out, flush=True),
        )


def _listen(orders: queue.SimpleQueue) -> None:
    for line in sys.stdin:
        orders.put(line)
    os._exit(0)  # nobody is waiting for an answer any more


def _loaded() -> Callable[[dict, Callable[[dict], None]], None]:
    from finitewidth.core.programs import keep_programs
    from finitewidth.interface.page import answers, orders
    from finitewidth.theory.feature_products import remember

    keep_programs(answers.LEAST_COMPILATION)
    remember(answers.REMEMBERED)
    return orders.work


if __name__ == "__main__":
    main()
