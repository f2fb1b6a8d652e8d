"""Files of pooled vectors: arrays (.npz) or a table (.parquet)."""

import importlib.util
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .._atomic import write_arrays, write_atomically


def check_features_file(path: Path) -> None:
    """Raise unless a file of this name can be written."""
    if path.suffix not in (".npz", ".parquet"):
        raise ValueError(f"features: expected --out to end in .npz or .parquet, got {str(path)!r}.")
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise ValueError(
            f"features: expected the package pyarrow to write {path.name!r}, which is not installed; "
            "run pip install pyarrow, or write an .npz file."
        )


def write_features(path: Path, files: Sequence[str], vectors: NDArray[np.float32]) -> None:
    """Write vectors (N, F) of ``files`` to a file that :func:`check_features_file` accepts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npz":
        write_arrays(path, vectors=vectors, images=np.array(files))
        return
    import pyarrow
    import pyarrow.parquet

    lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.reshape(-1)), vectors.shape[1])
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"image": list(files), "vector": lists}), buffer)
    write_atomically(path, buffer.getvalue())
