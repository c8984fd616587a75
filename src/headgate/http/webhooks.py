"""A listener that posts: each event as JSON to a URL; 2xx means heard.

Anything else, a redirect too, means not heard, and the event comes again after a pause. A receiver
knows a repetition by its sequence, which is also in a header.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.errors import UnavailableError
from headgate.protocol.events import Event
from headgate.wire import bodies

if TYPE_CHECKING:
    import httpx

SEQUENCE_HEADER: Final = "headgate-sequence"
_PATIENCE_S: Final = 10.0


class Webhook:
    """Posts events to one URL."""

    def __init__(self, url: str, transport: httpx.BaseTransport | None = None) -> None:
        import httpx  # a third of a server's start, and most servers have no webhook

        self._url = url
        # The receiver's address is one the operator chose: no proxy or netrc of the server's own
        # environment is to come between.
        self._http = httpx.Client(timeout=_PATIENCE_S, transport=transport, trust_env=False)

    def __call__(self, event: Event, /) -> None:
        """Post an event; raise unless it was heard."""
        import httpx

        headers = {"content-type": bodies.JSON, SEQUENCE_HEADER: str(event.sequence)}
        try:
            # What the receiver answers beyond its status is not read: it may never end.
            with self._http.stream(
                "POST", self._url, content=bodies.encode(event), headers=headers
            ) as response:
                status = response.status_code
        except httpx.HTTPError as error:
            why = str(error) or type(error).__name__
            raise UnavailableError(f"{self._url} cannot be told: {why}.") from error
        if not 200 <= status < 300:
            raise UnavailableError(f"{self._url} answered {status}.")
