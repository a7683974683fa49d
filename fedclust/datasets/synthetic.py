"""Synthetic(alpha, beta) of FedProx (Li et al., MLSys 2020), with FlexCFL's sizes (2108.09749)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
import torch

from fedclust.core.types import Dataset
from fedclust.helpers.effects import Never
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne, Clients, NonNegative, Ranged, Seed
from fedclust.helpers.rng import Stream

DIMENSION, NUM_CLASSES = 60, 10
_SMALLEST = 50  # examples every device has
_ALIKE = "it moves the weights of all classes alike, so the largest logit, the label, stays"


@dataclass(frozen=True, kw_only=True)
class Synthetic(Ranged):
    """Synthetic(alpha, beta): one linear classifier per device, y = argmax softmax(W x + b).

    The data depend on `data_seed` alone, so all seeds of a run share them; `owner` says whose they
    are, and partition=natural gives them to their device.
    """

    # standard deviation, over devices, of the mean of a device's classifier. It changes no label,
    # neither here nor in the generator as published: the mean is added to every class's weights
    # alike, so the largest logit stays.
    alpha: Annotated[NonNegative, Never(_ALIKE)] = 1.0
    beta: NonNegative = 1.0  # standard deviation, over devices, of the mean of a device's inputs
    num_devices: Clients = 100  # number of devices
    # number of examples, met within 1 % by scaling the drawn sizes; None leaves them as drawn
    total: AtLeastOne | None = 75_349
    # seed of everything drawn
    data_seed: Seed = 21  # its sizes as drawn already total 75,451

    def __post_init__(self) -> None:
        super().__post_init__()
        least = _SMALLEST * self.num_devices
        fits = self.total is None or self.total >= least
        each = f"at least {least} ({_SMALLEST} for each of dataset.num_devices)"
        require(fits, "dataset.total", self.total, f"{each}, or null for the sizes as drawn")

    def load(self) -> Dataset:
        """The arrays: x [N, 60] float32 sorted by device, all of them training examples."""
        stream = Stream.of(self.data_seed, "synthetic")
        sizes = self._sizes(stream.fold(0).numpy())
        rng = stream.fold(1).numpy()
        classifier_mean = rng.normal(0, self.alpha, self.num_devices)
        middle = rng.normal(0, self.beta, (self.num_devices, 1))
        input_mean = rng.normal(middle, 1, (self.num_devices, DIMENSION))
        spread = np.arange(1, DIMENSION + 1) ** -0.6  # square root of the variances j^-1.2
        x, y = [], []
        for device, size in enumerate(sizes):
            own = stream.fold(2, device).numpy()
            weight = own.normal(classifier_mean[device], 1, (DIMENSION, NUM_CLASSES))
            bias = own.normal(classifier_mean[device], 1, NUM_CLASSES)
            inputs = input_mean[device] + spread * own.standard_normal((size, DIMENSION))
            x.append(inputs.astype(np.float32))
            y.append((inputs @ weight + bias).argmax(1))
        return Dataset(
            name=f"Synthetic({self.alpha:g},{self.beta:g})",
            x_train=torch.from_numpy(np.concatenate(x)),
            y_train=torch.from_numpy(np.concatenate(y)),
            x_test=torch.empty(0, DIMENSION),
            y_test=torch.empty(0, dtype=torch.int64),
            num_classes=NUM_CLASSES,
            scale=torch.ones(1),
            shift=torch.zeros(1),
            owner=torch.from_numpy(np.repeat(np.arange(self.num_devices), sizes)),
        )

    def _sizes(self, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        drawn = rng.lognormal(4, 2, self.num_devices)
        if self.total is None:
            return drawn.astype(np.int64) + _SMALLEST
        # rounding down loses half an example per device on average, which the 1 % absorbs
        extra = self.total - _SMALLEST * self.num_devices
        drawn *= extra / drawn.sum()
        return drawn.astype(np.int64) + _SMALLEST
