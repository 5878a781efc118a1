"""Run and sweep folders: their files, their status, their locks, and what Slurm says of their jobs."""
