"""What launchers tell a process of its job."""

SETTINGS = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
# variable of a launcher -> its value for a single process; an Indexed Job of Kubernetes has several
LAUNCHERS = {"SLURM_NTASKS": "1", "OMPI_COMM_WORLD_SIZE": "1", "MEGASCALE_NUM_SLICES": "1", "JOB_COMPLETION_INDEX": ""}
