"""The data types of `fedclust.core` under the path that methods of your own import."""

from fedclust.core.calls import Alignment, LocalResult, LocalWork, MeanResult
from fedclust.core.client_models import ClientModels
from fedclust.core.front import Gradient, Train
from fedclust.core.pool import Pool
from fedclust.core.types import Cost, Dataset, Evaluation, Federation, Round, Served, Split

__all__ = [
    "Alignment",
    "ClientModels",
    "Cost",
    "Dataset",
    "Evaluation",
    "Federation",
    "Gradient",
    "LocalResult",
    "LocalWork",
    "MeanResult",
    "Pool",
    "Round",
    "Served",
    "Split",
    "Train",
]
