"""What a run folder holds: the result, its files, its status."""
