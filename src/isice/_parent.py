"""End child processes with their parent, however the parent ends."""

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_SECONDS = 1.0


def end_with_parent(parent: int) -> None:
    """Kill this process as soon as its parent has ended.

    Linux sends the signal at once. A thread that watches the parent's process id does the same on
    other systems, and if the parent has ended already.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_watch, args=(parent,), name="watch parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_SECONDS)
    os._exit(1)
