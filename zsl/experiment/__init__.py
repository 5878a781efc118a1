"""Runs, sweeps, tuning and estimates, from a configuration to recorded results."""
