"""One run, from a configuration to a recorded result: :func:`zsl.experiment.run.run` is the whole of it."""
