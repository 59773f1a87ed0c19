"""One search on the nodes of a Slurm cluster; needs dask-jobqueue and cryptography beside autoselect[distributed]."""

import autoselect
from dask_jobqueue import SLURMCluster
from distributed import Client

SLOTS = 8  # jobs at once on a node; each has a process of its own with one interpreter thread

if __name__ == "__main__":
    cluster = SLURMCluster(
        queue="cpu",
        cores=SLOTS,
        processes=1,
        memory="24GB",
        walltime="04:00:00",
        security=True,  # certificates for this search, in a folder that all nodes see
        shared_temp_directory=".",
        job_script_prologue=["export AUTOSELECT_CACHE_DIR=/tmp/autoselect-$USER"],
    )
    cluster.adapt(minimum_jobs=1, maximum_jobs=16)
    with Client(cluster) as client:
        autoselect.search(
            "model.tflite",
            calibration="calibration.npz",
            evaluation="labelled.npz",
            trials=2000,
            scheduler=client,
        )
