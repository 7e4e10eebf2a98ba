"""A run says where work runs, and refuses what cannot act."""

import pytest

import finitewidth as fw
from finitewidth.core.run import as_run, runner


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"client": 3}, "client must be a dask.distributed.Client, got 3"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"batch_size": 8, "memory": 1e9}, "give batch_size=8 or memory=1000000000.0, not both"),
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
    with pytest.raises(ValueError, match=f"{next(iter(given))} of fw.Run is for batches of real networks"):
        with runner(run, kind="solution", configuration=dict):
            pass
    with runner(run, kind="ensemble", configuration=dict, batches=True) as running:
        assert running.store is None


def test_what_is_no_long_work_refuses_tasks_but_not_the_lack_of_a_bar():
    assert as_run(fw.Run(progress=False), tasks=False) == fw.Run(progress=False)
    for given in ({"store": "a.zarr"}, {"progress": True}):
        with pytest.raises(ValueError, match=f"{next(iter(given))} of fw.Run is for long work in tasks"):
            as_run(fw.Run(**given), tasks=False)
