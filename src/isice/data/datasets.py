"""The table of datasets. Sizes and class counts are verified when a dataset is loaded."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from .._checks import suggestion
from ..config import DataConfig
from . import layouts, synthetic
from .digits import load_digits
from .layouts import DatasetSources
from .transforms import IMAGENET_MEAN, IMAGENET_STD


@dataclass(frozen=True)
class DatasetInfo:
    """One row of the table. A size of None is not verified.

    Attributes:
        num_classes: Number of classes.
        channels: Channels of an image.
        image_size: Default height and width of an image: the paper's.
        train_size: Images of the training split, before validation images are held out.
        test_size: Images of the test split.
        source: Origin of the data.
        load: Reads the files and returns a :class:`~isice.data.layouts.DatasetSources`.
        n_partitions: Largest ``data.partition``; None for any number.
        downloads: Whether ``data.download`` can fetch it, or no files are needed.
        embedded: Whether no files are needed: it ships with a package, or is generated.
        transform: The transform for ``data.transform="auto"``.
        mean: Default mean per channel; None for no normalisation.
        std: Default standard deviation per channel.
        classes: Class names in the order of the labels; set when loaded.
    """

    num_classes: int | None
    channels: int
    image_size: int
    train_size: int | None
    test_size: int | None
    source: str
    load: Callable[[DataConfig], DatasetSources]
    n_partitions: int | None = 1
    downloads: bool = False
    embedded: bool = False
    transform: str = "paper"
    mean: tuple[float, ...] | None = IMAGENET_MEAN
    std: tuple[float, ...] | None = IMAGENET_STD
    classes: tuple[str, ...] = ()


def _row(
    counts: tuple[int | None, int | None, int | None], channels: int = 3, image_size: int = 448, **facts: Any
) -> DatasetInfo:
    """Return a row, by default of photos; counts are classes, training and test images."""
    num_classes, train_size, test_size = counts
    return DatasetInfo(num_classes, channels, image_size, train_size, test_size, **facts)


_embedded = partial(_row, downloads=True, embedded=True, transform="none", mean=None, std=None)
_textures = partial(
    _embedded,
    counts=(synthetic.N_CLASSES, synthetic.TRAIN_SIZE, synthetic.TEST_SIZE),
    channels=synthetic.CHANNELS,
    image_size=synthetic.SIZE,
)

DATASETS: dict[str, DatasetInfo] = {
    "digits": _embedded(
        counts=(10, 1347, 450),
        channels=1,
        image_size=8,
        source="UCI optical recognition of handwritten digits, as shipped with scikit-learn",
        load=load_digits,
    ),
    "textures": _textures(
        source="generated: Gaussian fields; classes differ in the correlations of the channels",
        load=synthetic.load_textures,
    ),
    "textures_partial": _textures(
        source="generated: Gaussian fields; classes differ in the partial correlations of the channels",
        load=partial(synthetic.load_textures, family="partial"),
    ),
    "mit_indoor67": _row(
        counts=(67, 5360, 1340),
        source="https://web.mit.edu/torralba/www/indoor.html",
        load=layouts.load_mit_indoor67,
    ),
    "cub200": _row(
        counts=(200, 5994, 5794),
        source="https://www.vision.caltech.edu/datasets/cub_200_2011/",
        load=layouts.load_cub200,
    ),
    "aircraft": _row(
        counts=(100, 6667, 3333),
        source="torchvision FGVCAircraft",
        downloads=True,
        load=layouts.load_aircraft,
    ),
    "cars": _row(
        counts=(196, 8144, 8041),
        source="the layout of torchvision StanfordCars; the original site is gone",
        load=layouts.load_cars,
    ),
    "dtd": _row(
        counts=(47, 3760, 1880),
        source="torchvision DTD",
        downloads=True,
        load=layouts.load_dtd,
        n_partitions=10,
    ),
    "inaturalist2017": _row(
        counts=(5089, 579184, 95986),
        image_size=299,
        source="https://github.com/visipedia/inat_comp (2017); torchvision INaturalist has the images",
        downloads=True,
        load=layouts.load_inaturalist2017,
    ),
    "mini_imagenet": _row(
        counts=(100, 54000, 6000),
        image_size=224,
        source="100 ImageNet classes of 600 images (Vinyals et al. 2016; lists of Ravi and Larochelle 2017)",
        load=layouts.load_mini_imagenet,
        n_partitions=None,
    ),
    "imagenet100": _row(
        counts=(100, 126689, 5000),
        image_size=224,
        source="ILSVRC 2012 in folders train/<wnid>, val/<wnid>; the 100 classes of Tian et al. (2020)",
        load=layouts.load_imagenet100,
    ),
    "folder": _row(
        counts=(None, None, None),
        source="any folder: <class>/*, or train/<class>/* and test/<class>/* or val/<class>/*",
        load=layouts.load_folder,
    ),
}


def dataset_info(name: str) -> DatasetInfo:
    """Return the table row of a dataset.

    Example:
        >>> dataset_info("cub200").num_classes
        200
    """
    if name not in DATASETS:
        raise ValueError(
            f"data: expected one of {', '.join(sorted(DATASETS))}, got {name!r}.{suggestion(name, DATASETS)}"
        )
    return DATASETS[name]
