"""What the system says of processes."""

import pathlib


def status(process):
    """State and parent of a process, as the system has them; None where it is gone."""
    try:
        text = pathlib.Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    state, parent = text.rpartition(")")[2].split()[:2]
    return None if state == "Z" else (state, int(parent))
