"""The one exception for what a user can put right."""


class UserError(ValueError):
    """A mistake in the command, the configuration or the data.

    Its message is one sentence: the fact, the file or key, the remedy. The command line prints it
    without a traceback. A ``ValueError``, because Hydra lets the other jobs of a sweep go on after one,
    and because library users expect that type.
    """
