"""One run, from a configuration to a recorded result."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zsl.data.dataset import ZeroShotData
from zsl.data.labelled import set_aside
from zsl.device import on_device
from zsl.experiment.dask_client import dask_client
from zsl.experiment.figures import draw
from zsl.experiment.loading import load, unequal_rows
from zsl.experiment.outcome import Clock, evaluate
from zsl.experiment.selection import select
from zsl.experiment.setup import Setup, checked
from zsl.runs.folder import run_folder
from zsl.runs.result import Result, digest
from zsl.sparse.kernels.products import blas

if TYPE_CHECKING:
    from omegaconf import DictConfig

# Multiplications of a small run.
_SMALL = 1e10


def run(cfg: DictConfig, folder: Path | None = None) -> Result:
    """Check a configuration, load, choose settings, fit, predict, decide which stage answers, evaluate, write.

    Parameters
    ----------
    cfg : DictConfig
        From the command line or :func:`zsl.compose`.
    folder : Path, optional
        Where the run's files go, before anything is sent to the tracking store; ``None`` writes and tracks nothing.

    Returns
    -------
    Result
        Its ``metrics`` are the numbers that docs/metrics.md explains. With ``skip_existing=true`` nothing is fitted if
        ``output_dir`` or the tracking store has a finished run of the same digest; the result is then that run's
        record, without its prediction.

    Raises
    ------
    UserError
        For whatever is wrong with the configuration or the data, in a sentence.

    Examples
    --------
    >>> import zsl
    >>> result = run(zsl.compose(["model=eszsl", "tracking=none"]))
    >>> sorted(result.metrics)[:2]
    ['acc_class', 'hit_1']
    """
    with run_folder(folder) as out:
        setup = checked(cfg)
        data, labelled = load(setup), None
        if setup.labelled is not None:
            data, labelled = set_aside(data, setup.labelled)
        if setup.imbalance is not None:
            unequal_rows(setup, data)  # refuses a ratio that the test images do not allow, before the fit
        name = setup.run_name(data.split)
        existing = out.start(setup.config, setup.tracker, digest(setup.config, data.identity), name)
        if existing is not None:
            return existing
        with on_device(setup.config["device"]), steady_products(setup, data), dask_client(setup.config):
            clock = Clock()
            setup, selection = select(setup, data)
            clock.lap("tune")
            fitted = setup.classifier.fit_data(data).keep_labelled(labelled)
            clock.lap("fit")
            prediction = fitted.predict_stages(data.X_unseen)
            clock.lap("infer")
            prediction = fitted.decide(data, generalized=setup.generalized).apply(prediction)
            result = evaluate(setup, data, fitted, prediction, selection, clock)
        out.finish(result, fitted, data, draw if setup.config["figures"] else None)
    return result


def steady_products(setup: Setup, data: ZeroShotData) -> AbstractContextManager[Any]:
    """Let BLAS use one thread for a run that is small enough, so that the number of cores changes no digit.

    BLAS sums in another order with another number of threads. Up to about 1e10 multiplications a second thread gains
    nothing (docs/repeatable.md); larger runs use all, and agree with others to rounding.
    """
    n, p = data.X.shape
    kernel = min(n, getattr(setup.classifier.model, "max_images", 0))  # the side of a kernel matrix
    small = max(float(n) * p**2, float(kernel) ** 3) <= _SMALL
    return blas().limit(limits=1, user_api="blas") if small else nullcontext()
