"""The claims registry: complete, honest about failures, and able to see a theory that is wrong."""

import json

import numpy as np
import pytest
from helpers.claim_faults import FAULTS
from helpers.problems import also_long

import finitewidth as fw
from finitewidth.comparison import claims
from finitewidth.comparison.claim import Claim, equations
from finitewidth.comparison.claim_store import ClaimStore
from finitewidth.comparison.evidence import Comparison, agree, differ, pull, significant
from finitewidth.core.estimate import Estimate
from finitewidth.core.storage.lock import locked
from finitewidth.interface.cli import main as cli
from finitewidth.theory.one_input import NAMES

KEYS = {"id", "source", "statement", "stated", "measured", "error", "verdict", "corrected"}
CHAPTER_10 = """10.11-10.13 10.27-10.28 10.35 10.40-10.41 10.49 10.52 10.55 10.62-10.63 10.65-10.67
    10.70-10.72
    10.75-10.81 10.90-10.98 10.104 10.110-10.117 10.130-10.131 10.135-10.141""".split()
CHAPTER_INFINITY = """inf.13 inf.19-26 inf.30-38 inf.46-51 inf.64-66 inf.73-79 inf.90-93 inf.101 inf.117
    inf.126-130 inf.141-153 inf.155 inf.160-167 inf.168-171 inf.172 inf.173""".split()
TOPICS = [
    "sparsity.one-layer",
    "sparsity.two-layers",
    "sparsity.two-layers-dependent",
    "sparsity.many-layers",
    "ntk-talk.deterministic",
    "ntk-talk.constant",
    "ntk-talk.trajectory",
    "ntk-talk.perfect-fit",
    "ntk-talk.kernel-regression",
    "ntk-talk.recursions",
    "effective-theory.no-representation-learning",
    "effective-theory.no-algorithm-dependence",
    "effective-theory.representation-learning",
    "effective-theory.algorithm-dependence",
    "effective-theory.order-L-over-n",
    "10.footnote-37",
    "inf.relu-width",
    "inf.relu-depth",
    "residual.memory",
    "residual.odd-class",
    "appendix-B.depth",
    "5.scale-invariant",
    "5.half-stable",
    "7.one-step",
    "9.equal-layers",
    "11.growth",
]
# cheap, deterministic, and between them about every recursion and every projector
QUICK = (
    "sparsity.many-layers",
    "sparsity.many-layers-ntk",
    "inf.14-17",
    "inf.142-147",
    "inf.148",
    "inf.149-153",
    "9.equal-layers",
)
QUICK += ("inf.101-102", "inf.126-130", "inf.155", "10.130-10.131", "10.67", "10.70")
QUICK += ("residual.memory", "residual.odd-class", "residual.fixed-kernel", "residual.linear")


def call(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stop:
        cli.main([str(argument) for argument in arguments])
    return int(stop.value.code or 0)


@pytest.fixture
def few(monkeypatch):
    """A registry of three claims: one holds, one does not, one raises."""

    def broken():
        raise ValueError("no such luck")

    made = [
        Claim("10.1-10.3", "book", "one is one", "closed form", lambda: [agree("one", 1.0, 1.0, 1e-9)]),
        Claim("talk.two", "talk", "one is two", "recursion", lambda: [agree("two", 2.0, 1.0, 0.1)], "one"),
        Claim("inf.7", "book", "raises", "closed form", broken, long=True),
    ]
    monkeypatch.setattr(claims, "registry", lambda: tuple(made))
    return made


# --- what there is -----------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [*CHAPTER_10, *CHAPTER_INFINITY])
def test_every_equation_has_a_claim(group):
    missing = [e for e in equations(group) if not any(one.covers(e) for one in claims.registry())]
    assert equations(group) and not missing


def test_every_topic_of_the_talks_has_a_claim():
    assert set(TOPICS) <= {one.id for one in claims.registry()}
    assert len(claims.registry()) >= 60


def test_claims_say_what_they_rest_on():
    for one in claims.registry():
        assert one.statement.endswith(".") and len(one.source) > 3
        kinds = ("closed form", "recursion", "sampled networks", "trained networks")
        assert one.how.startswith(kinds), one.id


def test_an_id_names_equations():
    assert equations("10.40-10.42") == {"10.40", "10.41", "10.42"} == equations("10.40-42")
    assert equations("inf.162") == {"inf.162"}
    assert equations("inf.160-162.networks") == {"inf.160", "inf.161", "inf.162"}
    assert equations("sparsity.two-layers") == set()
    assert [one.id for one in claims.chosen(["(10.93)"])] == ["10.92-10.95"]
    with pytest.raises(ValueError, match="no claim is called '10.999'"):
        claims.chosen(["10.999"])


# --- evidence ----------------------------------------------------------------------------------------


def test_comparisons_hold_within_their_allowance_only():
    one = Estimate(np.array([1.0, 2.0]), np.array([0.1, 0.1]))
    assert pull("x", [1.3, 2.0], one).holds and not pull("x", [1.5, 2.0], one).holds
    assert (
        significant("x", one, 1.0).holds and not significant("x", Estimate(one.value / 20, one.stderr)).holds
    )
    assert agree("x", [1.0, 100.0], [1.05, 100.0], 1e-3).holds and not agree("x", 1.0, 1.05, 1e-3).holds
    assert differ("x", 1.0, 1.05, 1e-3).holds and not differ("x", 1.0, 1.0, 1e-3).holds
    for broken in (
        agree("x", 1.0, np.nan, 1.0),
        pull("x", [0.0, 0.0], Estimate(np.array([0.0, np.nan]), one.stderr)),
    ):
        assert not broken.holds
    assert not Comparison("x", 1.0, 2.0, 0.0).holds and Comparison("x", 1.0, 1.0, 0.0).holds


# --- running -----------------------------------------------------------------------------------------


def test_json_has_the_promised_keys(few, capsys):
    assert call("claims", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"claims"}
    good, bad = document["claims"]
    assert set(good) == KEYS == set(bad)
    assert (good["verdict"], bad["verdict"]) == ("pass", "fail")
    assert (bad["stated"], bad["measured"], bad["corrected"]) == (2.0, 1.0, "one")


def test_a_claim_that_raises_fails_with_its_message(few, capsys):
    assert call("claims", "--only", "inf.7") == 1
    out = capsys.readouterr().out
    assert "FAIL" in out and "ValueError: no such luck" in out
    assert call("claims", "--only", "10.2") == 0
    assert "FAIL" not in capsys.readouterr().out


def test_bad_ids_are_refused_in_one_line(few, capsys):
    assert call("claims", "--only", "10.99") == 2
    assert capsys.readouterr().err.startswith("finitewidth: no claim is called '10.99'")


def test_a_long_run_goes_on_where_it_stopped(few, tmp_path):
    store, runs = tmp_path / "claims.json", []
    counted = Claim("10.1", "book", "counted", "closed form", lambda: runs.append(1) or [agree("x", 1, 1, 1)])
    few.insert(0, counted)
    for fresh in (False, False, True):
        verdicts = [one.verdict for one in claims.claims(long=True, store=store, fresh=fresh)]
        assert verdicts == ["pass", "pass", "fail", "fail"]
    assert len(runs) == 2
    kept = json.loads(store.read_text())
    assert set(kept["outcomes"]) == {"10.1", "10.1-10.3"}  # failures are measured again
    store.write_text(json.dumps({**kept, "source": "other code"}))
    assert ClaimStore(store).outcomes == {}
    with (
        locked(store),
        pytest.raises(ValueError, match="claims.json' is in use by process"),
    ):
        next(claims.claims(long=True, store=store))
    store.write_text("{")
    with pytest.raises(ValueError, match="not a store of claims, or is damaged"):
        ClaimStore(store)


@pytest.mark.parametrize("id", QUICK)
def test_quick_claims_hold(id):
    (outcome,) = fw.claims([id])
    assert outcome.passed, outcome.tightest


# --- a broken theory ---------------------------------------------------------------------------------

# compiled anew with each fault, or seen by claims about real networks: in the script only
SLOW = tuple(f"{name}, one input" for name in NAMES if name != "R")
SLOW += tuple(f"sign of the {part} in the mean" for part in ("dNTK", "first ddNTK", "second ddNTK"))
SLOW += ("evolved_ntk of one network", "one input through thousands of layers", "angle of relu networks")
SLOW += ("no memory of relu networks", "K, from layer to layer", "Theta, from layer to layer")


QUICK = [name for name in FAULTS if name not in SLOW]


@pytest.mark.parametrize("name", [*QUICK[::2], *also_long(*QUICK[1::2])])
def test_a_wrong_coefficient_is_seen(name):
    """By the cheapest claim about it; benchmarks/robustness/claims_faults.py has all faults and claims."""
    fault = FAULTS[name]
    with fault.inject():
        (outcome,) = [claims.run(one) for one in claims.registry() if one.id == fault.claims[0]]
    assert outcome.message is None and not outcome.passed
