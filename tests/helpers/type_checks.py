"""How annotations are checked while tests run, and at what price.

The import hook of jaxtyping wraps every function of the package. Its wrapper binds the arguments and opens a
scope for the letters of shapes at each call, which is ten times the price of checking types. So functions
whose annotations name shapes get this wrapper, other annotations are checked by beartype alone, and functions
without annotations, in which there is nothing to check, are left as they are.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_args

import jaxtyping
from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is as good as a float (PEP 484)

in_full = jaxtyping.jaxtyped


def as_needed(fn: Any = None, *, typechecker: Callable) -> Any:
    """The decorator that the import hook applies, in place of `jaxtyping.jaxtyped`."""
    if fn is None:
        return functools.partial(as_needed, typechecker=typechecker)
    if dataclasses.is_dataclass(fn) and inspect.isfunction(vars(fn).get("__init__")):
        fn.__init__ = as_needed(fn.__init__, typechecker=typechecker)
        return fn
    if not inspect.isfunction(fn) or any(names_shapes(hint) for hint in fn.__annotations__.values()):
        return in_full(fn, typechecker=typechecker)
    return types_only(fn, typechecker(fn)) if fn.__annotations__ else fn


def names_shapes(hint: Any) -> bool:
    """Whether an annotation holds shapes, or is a string that may."""
    if isinstance(hint, str) or (inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray)):
        return True
    return any(names_shapes(part) for part in get_args(hint))


def types_only(fn: Callable, with_checks: Callable) -> Callable:
    @functools.wraps(fn)
    def either(*args, **kwargs):
        return (fn if jaxtyping.config.jaxtyping_disable else with_checks)(*args, **kwargs)

    return either
