"""Lists in MATLAB's format.

They are read in a process of their own: scipy's reader may end its process on a damaged file.
"""

import json
import subprocess
import sys
from pathlib import Path


def read_mat(path: Path, name: str, *fields: str) -> list[list[str]]:
    """Read the array ``name`` of structs: the values of ``fields`` of each, as strings.

    Without ``fields``, the array holds strings, and each row is one of them.
    """
    if not path.is_file():
        raise FileNotFoundError(f"data: expected a list of MATLAB at {str(path)!r}, which does not exist.")
    command = [sys.executable, "-P", __file__, str(path), name, *fields]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 0:
        rows: list[list[str]] = json.loads(done.stdout)
        return rows
    reason = done.stderr.strip().splitlines()[-1:] or [f"its reader ended with status {done.returncode}"]
    raise ValueError(
        f"data: expected a list {name!r} of MATLAB in {str(path)!r}, got a damaged file ({reason[0]}); unpack it again."
    )


def _main(path: str, name: str, *fields: str) -> None:
    import numpy as np
    from scipy.io import loadmat

    values = np.atleast_1d(loadmat(path, squeeze_me=True)[name])
    rows = [[str(value[field]) for field in fields] if fields else [str(value)] for value in values]
    sys.stdout.write(json.dumps(rows))


if __name__ == "__main__":
    _main(*sys.argv[1:])
