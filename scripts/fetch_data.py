"""Download data sets: python scripts/fetch_data.py [--root data] [mnist fashion_mnist cifar10
emnist].
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fedclust.datasets.cifar10 import CIFAR10
from fedclust.datasets.emnist import EMNIST
from fedclust.datasets.fashion_mnist import FashionMNIST
from fedclust.datasets.mnist import MNIST
from fedclust.errors import UserError

LOADERS: dict[str, Callable[..., MNIST | FashionMNIST | CIFAR10 | EMNIST]] = {
    "mnist": MNIST,
    "fashion_mnist": FashionMNIST,
    "cifar10": CIFAR10,
    "emnist": EMNIST,
}


def main() -> int:
    """Exit status: 0, or 2 when a data set could not be fetched."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "name", nargs="*", default=["mnist", "fashion_mnist", "cifar10"], help=", ".join(LOADERS)
    )
    parser.add_argument(
        "--root", default=os.environ.get("FEDCLUST_DATA", "data"), help="the folder, data.root"
    )
    arguments = parser.parse_args()
    status = 0
    for name in arguments.name:
        if name not in LOADERS:
            parser.error(f"unknown data set {name}: choose from {', '.join(LOADERS)}")
        try:
            dataset = LOADERS[name](root=arguments.root, download=True).load()
        except UserError as error:
            print(error, file=sys.stderr)
            status = error.exit_status
        else:
            print(
                f"{name}: {len(dataset.x_train)} + {len(dataset.x_test)} images in {arguments.root}"
            )
    return status


if __name__ == "__main__":
    sys.exit(main())
