"""A run says where work runs, and refuses what cannot act."""

import pytest

import finitewidth as fw
from finitewidth.core.run import as_run, only, runner


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"client": 3}, "client must be a dask.distributed.Client, got 3"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"memory": -1.0}, "memory must be a positive number of bytes, got -1.0; use memory=1e9"),
    ],
)
def test_a_run_refuses_what_is_no_client_and_no_size(options, message):
    with pytest.raises(ValueError, match=message):
        fw.Run(**options)


def test_none_is_a_run_without_anything_and_other_things_are_refused():
    assert as_run(None) == fw.Run()
    with pytest.raises(ValueError, match="run must be an fw.Run"):
        as_run("store.zarr")


@pytest.mark.parametrize("given", [{"batch_size": 8}, {"memory": 1e9}])
def test_sizes_of_batches_are_refused_where_no_networks_are_drawn(given):
    run = fw.Run(**given)
    with pytest.raises(ValueError, match=f"run has {next(iter(given))}=.* no real networks are drawn"):
        with runner(run, kind="solution", configuration=dict):
            pass
    with runner(run, kind="ensemble", configuration=dict, networks=True) as running:
        assert running.store is None


def test_only_what_acts_is_taken_and_no_bar_is_always_to_be_had():
    assert only(fw.Run(progress=False), (), "at order 0") == fw.Run(progress=False)
    with pytest.raises(
        ValueError, match="run has store='a.zarr', which does nothing at order 0; use order=1."
    ):
        only(fw.Run(store="a.zarr"), ("progress",), "at order 0", "use order=1")
