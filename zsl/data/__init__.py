"""Datasets, splits and pre-processing."""
