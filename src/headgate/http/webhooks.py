"""A listener that posts each event as JSON to a URL; a status from 200 to 299 acknowledges it.

Anything else, a redirect too, does not, and the event is posted again after a pause. A receiver
recognises a repetition by its sequence, which is also in a header.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headgate.api import bodies
from headgate.api.events import Event
from headgate.catalog.webhook_addresses import WebhookAddresses
from headgate.errors import UnavailableError

if TYPE_CHECKING:
    import httpx

SEQUENCE_HEADER: Final = "headgate-sequence"
_TIMEOUT_S: Final = 10.0
# The same for every failure: a client that registers a listener must not learn from it which ports
# are open in the server's network, and what answers there. The log has the cause.
_REFUSED: Final = "The receiver did not acknowledge the event with a status from 200 to 299."

_log = logging.getLogger(__name__)


class Webhook:
    """Posts events to one URL."""

    def __init__(
        self, url: str, receivers: WebhookAddresses, transport: httpx.BaseTransport | None = None
    ) -> None:
        import httpx  # a third of a server's start, and most servers have no webhook

        self._url = httpx.URL(url)
        self._receivers = receivers
        # The operator chose the receiver's address, so no proxy or netrc of the server's own
        # environment comes between; and a redirect could lead anywhere.
        self._http = httpx.Client(
            timeout=_TIMEOUT_S, transport=transport, trust_env=False, follow_redirects=False
        )

    def __call__(self, event: Event, /) -> None:
        """Post an event; raise unless it was acknowledged."""
        import httpx

        headers = {
            "host": urlsplit(str(self._url)).netloc,
            "content-type": bodies.JSON,
            SEQUENCE_HEADER: str(event.sequence),
        }
        host = self._url.host
        port = self._url.port or (443 if self._url.scheme == "https" else 80)
        cause = ""
        # Connected to by the address that was checked: another lookup of the name could give
        # another one.
        for address in self._receivers.resolve(host, port):
            try:
                # Of the response only the status is read: the rest may never end.
                with self._http.stream(
                    "POST",
                    self._url.copy_with(host=address),
                    content=bodies.encode(event),
                    headers=headers,
                    extensions={"sni_hostname": host},
                ) as response:
                    if 200 <= response.status_code < 300:
                        return
                    cause = f"it answered {response.status_code}"
                    break
            except httpx.ConnectError as error:
                cause = str(error)  # perhaps another address of the host answers
            except httpx.HTTPError as error:
                cause = str(error) or type(error).__name__
                break
        _log.info("event %d was not acknowledged by %s: %s", event.sequence, host, cause)
        raise UnavailableError(_REFUSED)
