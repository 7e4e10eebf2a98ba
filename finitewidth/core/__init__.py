"""What every room needs: inputs, precision, memory, keys, tasks, stores. It knows no networks.

Long work is a list of independent tasks, known by their numbers and fixed by the request alone. One
mechanism runs all of them, `Runner` in `core/tasks.py`: in this process, on several JAX devices, or on a
Dask cluster (`fw.Run(client=...)`). A task is one program with single-threaded matrix products, and
results are handed on in order, so they have the same bits on any number of workers of one kind of
machine. The work itself (network, data, the user's functions) is sent to each worker once; a worker that
dies is replaced by the others, and a refusal comes back as it is.

On disk (`core/checkpoint.py`) a run with a `store` is a Zarr group, its attributes the configuration and
version. Each list of tasks is a group in it that holds the results of finished tasks, each committed by
its entry of `done`, which is written last; nothing is pickled. A run that is killed loses the tasks in
progress and nothing else. A lock beside the store (`core/storage/lock.py`, by `filelock`), released by
the system when its process dies, keeps a second run out. A store of another configuration is refused with
the name of the setting that differs. Every task carries a seal, a hash of all its numbers, which is
compared when it is read; chunks carry checksums, so that readers such as xarray refuse damaged data;
missing numbers are NaN (`core/storage/files.py`). New results are written beside earlier ones and then
renamed over them. reliability.md reports the fault and fuzzing tests. `progress` is a bar, or a function
that is told how much is done.
"""
