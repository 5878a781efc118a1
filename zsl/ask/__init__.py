"""``zsl ask``: clusters of the test images of a finished run, named with the user's help."""
