"""Where this host's sendmail program is. Apart from mail.py, so that asking costs no import of the email package."""

import os

FOLDERS = "/usr/sbin:/usr/lib:/usr/local/sbin"


def sendmail() -> str | None:
    """Its path, None where no mail transport agent is installed."""
    for folder in f"{os.environ.get('PATH', os.defpath)}:{FOLDERS}".split(":"):
        path = os.path.join(folder, "sendmail")
        if folder.startswith("/") and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None
