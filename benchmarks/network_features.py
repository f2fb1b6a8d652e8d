"""Compute features of a network for gpu_speed.py --features: an array (B, C, N) in a .npy file.

Usage: python benchmarks/network_features.py IMAGES OUT.npy [--weights FILE] [--model vgg16]
                                             [--channels 256] [--count 32]

IMAGES is a folder with JPEG files, at any depth. ``count`` of them, evenly spaced in their sorted
names, are resized to ``size``. The first ``channels`` channels of the network's last map are kept.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torchvision.transforms.v2.functional import normalize, resize

from isice.data.images import read_image
from isice.models.backbone import create_backbone
from isice.models.weights import load_weights


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="vgg16")
    parser.add_argument("--weights", type=Path, help="weights file; by default timm downloads its own")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--channels", type=int, default=256)
    parser.add_argument("--count", type=int, default=32)
    args = parser.parse_args(argv)
    if args.out.suffix != ".npy" or not args.out.parent.is_dir():
        raise SystemExit(f"network_features: expected a .npy file in a folder that exists, got {args.out}.")
    if min(args.size, args.channels, args.count) < 1:
        raise SystemExit("network_features: expected --size, --channels and --count of 1 or more.")
    files = sorted(args.images.rglob("*.jpg"))
    if len(files) < args.count:
        raise SystemExit(
            f"network_features: expected {args.count} .jpg files or more under {args.images}, got {len(files)}; "
            "pass another folder or a smaller --count."
        )
    backbone = create_backbone(args.model, pretrained=args.weights is None).eval()
    if args.weights:
        print(load_weights(backbone.model, args.weights))
    maps = []
    with torch.inference_mode():
        for i in range(args.count):
            image = read_image(files[i * len(files) // args.count])
            image = resize(image, [args.size, args.size], antialias=True).float() / 255
            maps.append(backbone(normalize(image, IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD)[None]))
    features = torch.cat(maps)[:, : args.channels].flatten(2)
    np.save(args.out, features.half().numpy())
    print(f"wrote {args.out}: {tuple(features.shape)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
