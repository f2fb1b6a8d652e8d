"""Rows of sample images, one for each dataset."""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from ..records import SAMPLES_FILE
from .results import Results

SAMPLES_CAPTION = "Test images of different classes, one row for each dataset."


def samples_figure(results: Results) -> Figure | None:
    """Draw the rows of images that the runs left in their folders; None without any."""
    rows = [
        (group.labels[0], plt.imread(path))
        for group in results.groups
        for record in group.finished[:1]
        if (path := Path(record["folder"]) / SAMPLES_FILE).is_file()
    ]
    if not rows:
        return None
    height = sum(image.shape[0] / image.shape[1] for _, image in rows)
    figure, axes = plt.subplots(len(rows), 1, figsize=(9, 9 * height + 0.35 * len(rows)), squeeze=False)
    for axis, (label, image) in zip(axes[:, 0], rows, strict=True):
        axis.imshow(image)
        axis.set_title(label, loc="left", fontsize=9)
        axis.axis("off")
    return figure
