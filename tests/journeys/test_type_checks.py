"""The checks of types and shapes that run in every test are awake, and have the price that they need."""

import dataclasses
import inspect

import jaxtyping
import numpy as np
import pytest
from beartype.roar import BeartypeCallHintViolation
from helpers.problems import as_for_users
from helpers.type_checks import as_needed, checked
from jaxtyping import Float

from finitewidth.core import inputs
from finitewidth.network.layers.dense import Dense

watched = as_needed(typechecker=checked)


@watched
def product(A: Float[np.ndarray, "n m"], B: Float[np.ndarray, "m k"]) -> tuple[Float[np.ndarray, "n k"], int]:
    return A @ B, 2


@watched
def half(x: float) -> float:
    return x / 2 if x < 100 else "much"


@watched
@dataclasses.dataclass(frozen=True)
class Pair:
    left: Float[np.ndarray, " n"]
    right: Float[np.ndarray, " n"]


def test_letters_of_shapes_agree_over_all_arguments_and_inside_of_tuples():
    assert product(np.ones((2, 3)), np.ones((3, 4)))[0].shape == (2, 4)
    with pytest.raises(jaxtyping.TypeCheckError):
        product(np.ones((2, 3)), np.ones((2, 3)))
    with pytest.raises(jaxtyping.TypeCheckError):
        Pair(np.ones(2), np.ones(3))


def test_types_of_arguments_and_results_are_checked_and_an_int_is_a_float():
    assert half(3) == 1.5
    for wrong in ("3", 100.0):
        with pytest.raises(BeartypeCallHintViolation):
            half(wrong)
    with as_for_users():
        assert half(100.0) == "much"


def test_what_has_no_annotations_is_left_as_it_is():
    def plain(x, y=2):
        return x + y

    assert watched(plain) is plain


def test_the_package_is_under_these_checks():
    assert inspect.unwrap(inputs.as_number) is not inputs.as_number
    with pytest.raises(BeartypeCallHintViolation):
        Dense("3")
