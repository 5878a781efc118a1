"""Predictions of a stored classifier for new images, from the command line and over HTTP."""
