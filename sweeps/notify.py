"""Notify a person that a sweep or a search has ended or a run has failed.

The environment variable SCPO_NOTIFY is a webhook or a command. A webhook (``https://...``) gets
``{"text": ..., "content": ...}``: Slack and Mattermost read the first key, Discord the second. A
command gets the text as its last argument. This is not a configuration key, because configurations
are recorded and the address of a webhook is a secret.
"""

import json
import logging
import os
import shlex
import socket
import subprocess
import urllib.error
import urllib.request

from scpo.records.redaction import redact

VARIABLE = "SCPO_NOTIFY"
TIMEOUT_S = 10.0

logger = logging.getLogger(__name__)


def notify_of_failure(run_id: str, reason: str | None) -> None:
    """Report a run that failed, with the host that it ran on."""
    notify(f"scpo: {run_id} FAILED on {socket.gethostname()}: {reason}")


def notify(text: str) -> None:
    """Send a notice, without secrets of the environment in its text.

    A failure is logged without the address, and never stops the caller.
    """
    target = os.environ.get(VARIABLE, "").strip()
    if not target:
        return
    text = redact(text)
    try:
        if target.startswith(("https://", "http://")):
            body = json.dumps({"text": text, "content": text}).encode()
            request = urllib.request.Request(  # noqa: S310 (http or https, see above)
                target, body, {"Content-Type": "application/json"}
            )
            urllib.request.urlopen(request, timeout=TIMEOUT_S).close()  # noqa: S310
        else:
            command = [*shlex.split(target), text]
            subprocess.run(
                command,
                check=True,
                timeout=TIMEOUT_S,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
    except urllib.error.HTTPError as error:
        logger.warning("%s: the webhook answered %s", VARIABLE, error.code)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        # Only the kind of error: its text may hold the address, which is a secret.
        logger.warning("%s: no notice was sent (%s)", VARIABLE, type(error).__name__)
