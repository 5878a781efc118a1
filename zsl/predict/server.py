"""Answers over HTTP for a finished run: ``zsl serve RUN`` (also ``python -m zsl.predict.server``).

    curl 127.0.0.1:5000/invocations -H 'Content-Type: application/json' -d '{"inputs": [[0.1, ...]]}'

The server listens on this machine alone unless ``--host`` says otherwise. A request is read up to a limit, one is
worked on at a time, and a mistake in it is answered with status 400 and one sentence.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zsl.classifier import ZeroShotClassifier
from zsl.errors import Parser, UserError, exit_status
from zsl.predict.__main__ import model_of
from zsl.predict.answers import answer
from zsl.system import listen

log = logging.getLogger(__name__)

MOST_BYTES = 64 << 20
"""Size of a request"""
_WAITING = 64
"""Requests that wait or are worked on; more are told to come later"""
_PATIENCE_S = 20
"""How long a client may take to send its request"""


def application(classifier: ZeroShotClassifier, *, most_bytes: int = MOST_BYTES) -> Any:
    """The web application (ASGI) that answers for a classifier.

    Parameters
    ----------
    classifier : ZeroShotClassifier
        Fitted.
    most_bytes : int
        A larger request is refused with status 413.
    """
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route

    # The numerical libraries use all cores for one request, and not all of them can be called by two threads at once.
    working = asyncio.Lock()
    waiting = 0

    def reply(content: Any, status: int = 200) -> Response:
        # Escapes, because a name from a request may hold what no encoding has.
        return Response(json.dumps(content), status, media_type="application/json")

    async def health(request: Request) -> Response:
        return reply({"status": "ready"})

    async def invocations(request: Request) -> Response:
        nonlocal waiting
        if waiting >= _WAITING:
            return reply({"error": "too many requests are waiting; try again in a while."}, 503)
        waiting += 1
        try:
            body = await asyncio.wait_for(_body(request, most_bytes), _PATIENCE_S)
            async with working:
                return reply({"predictions": await asyncio.to_thread(_answer, classifier, body)})
        except TimeoutError:
            return reply({"error": f"the request did not arrive within {_PATIENCE_S} s."}, 408)
        except ClientDisconnect:
            return reply({"error": "the client left."}, 400)
        except _TooLarge:
            return reply({"error": f"the request has more than {most_bytes} bytes; send fewer images."}, 413)
        except UserError as error:
            return reply({"error": str(error)}, 400)
        except MemoryError:
            return reply({"error": "there is not enough memory for this request; send fewer images."}, 413)
        except Exception:
            log.exception("a request failed")
            return reply({"error": "the server failed; its log says why."}, 500)
        finally:
            waiting -= 1

    routes = [Route(path, health) for path in ("/ping", "/health")]
    return Starlette(routes=[*routes, Route("/invocations", invocations, methods=["POST"])])


class _TooLarge(Exception):
    """A request has more bytes than are read."""


async def _body(request: Any, most: int) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise _TooLarge
    return bytes(body)


def _answer(classifier: ZeroShotClassifier, body: bytes) -> list[dict[str, Any]]:
    example = '{"inputs": [[0.1, ...], ...], "params": {...}}'
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        raise UserError(f"the request is no JSON; write {example}.") from None
    if not isinstance(asked, dict) or "inputs" not in asked or set(asked) - {"inputs", "params"}:
        raise UserError(f"the request should have inputs, perhaps params, and nothing else; write {example}.")
    return answer(classifier, asked["inputs"], asked.get("params"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, 1 after a sentence on what is wrong, or 130 after Ctrl-C."""
    parser = Parser("zsl serve", description=(__doc__ or "").partition(":")[0] + ".")
    parser.add_argument("run", metavar="RUN", type=Path, help="a run's folder or id, or a model.skops")
    parser.add_argument("--port", type=int, default=5000, help="default: 5000")
    parser.add_argument("--host", default="127.0.0.1", help="default: this machine alone")
    parser.add_argument("--allow", action="append", default=[], metavar="PACKAGE",
                        help="a package outside zsl whose model the run used")  # fmt: skip
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stderr)
    return exit_status("zsl serve", lambda: _work(parser.parse_args(argv)))


def _work(arguments: argparse.Namespace) -> None:
    import uvicorn

    classifier = ZeroShotClassifier.load(model_of(arguments.run), allow=arguments.allow)
    app = application(classifier)
    listening = listen(arguments.host, arguments.port, tries=1)
    address = f"http://{arguments.host}:{listening.getsockname()[1]}/invocations"
    print(f"{address} answers for {arguments.run}; Ctrl-C ends it", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", limit_concurrency=200)).run(sockets=[listening])


if __name__ == "__main__":
    sys.exit(main())
