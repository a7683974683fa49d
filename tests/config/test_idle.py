"""Values that are read and without effect: told where they are typed."""

from __future__ import annotations

import pytest
import torch
from configs import composed, unresolved

from fedclust.config.idle import idle
from fedclust.config.objects import Objects
from fedclust.core.traits import traits_of
from fedclust.datasets.synthetic import Synthetic
from fedclust.helpers.errors import ConfigError
from fedclust.launch.typed import Typed
from fedclust.launch.unread import without_effect

PRETRAINED = "algorithm.first_assignment=kmeans_pretrained"
TABLE = "dataset=csv dataset.client=who"
NAMED = "names the test examples; it is read where none are named"
LABELS = "partition=label_map"
IMAGES = "partition=transform"
STILL = "nobody's data change; it needs a scenario with a shift"
SYNTHETIC = "algorithm=fedavg dataset=synthetic partition=natural"
# "job > typed", by what is said of the typed value; below "" those with an effect
IDLE: dict[str, list[str]] = {
    "": [
        f"algorithm=fesem {PRETRAINED} > algorithm.cold_start.scale=5",
        "algorithm=flexcfl scenario=swap_all > algorithm.shift.fraction=0.3",
        "algorithm=diffnorm num_clusters=auto > cluster_method.min_silhouette=0.1",
        "algorithm=feddrift algorithm.every=2 > algorithm.delta=0.2",
        f"{SYNTHETIC} > dataset.beta=0",
        f"{TABLE} dataset.test_share=0 > partition.train_fraction=0.5",
        f"{TABLE} dataset.test_share=0 > dataset.data_seed=1",
        f"{LABELS} partition.maps=random > partition.num_concepts=8",
        f"{LABELS} partition.maps=pool partition.moved=2 > partition.data_seed=5",
        "partition=class_transform > partition.data_seed=5",
        "scenario=unavailable scenario.stragglers=0.5 > scenario.min_work=0.5",
    ],
    f"it is read with {PRETRAINED}": [
        "algorithm=fesem > algorithm.cold_start.scale=5",
        "algorithm=fesem > cluster_metric@algorithm.cold_start.metric=madc",
    ],
    "it is read with algorithm.migration=true": [
        "algorithm=fedgroup > algorithm.shift.fraction=0.3"
    ],
    STILL: [
        "algorithm=flexcfl > algorithm.migration=false",
        "algorithm=flexcfl > algorithm.shift.fraction=0.3",
        "algorithm=ifca_mig > algorithm.shift.distance=released",
    ],
    "it is read with algorithm.cold_start.grouping=clustered": [
        "algorithm=flexcfl_rcc > algorithm.cold_start.scale=5"
    ],
    "it is read with cluster_method.num_clusters=auto": [
        "algorithm=diffnorm > cluster_method.max_clusters=5"
    ],
    "it is read with algorithm.method.num_clusters=auto": [
        "algorithm=flhc algorithm.method.threshold=1.0 > algorithm.method.min_silhouette=0.1"
    ],
    f"{STILL}, or algorithm.every": [
        "algorithm=feddrift > algorithm.delta=0.2",
        "algorithm=feddrift > algorithm.linkage=average",
    ],
    "it is not read with algorithm.merge_delta=null": [
        "algorithm=feddrift_eager scenario=swap_all > algorithm.linkage=average"
    ],
    "it is read with algorithm.warmup.mode=local": ["algorithm=lcfl > algorithm.warmup.steps=3"],
    "it moves the weights of all classes alike, so the largest logit, the label, stays": [
        f"{SYNTHETIC} > dataset.alpha=0"
    ],
    f"dataset.test_share {NAMED}": [f"{TABLE} > partition.train_fraction=0.5"],
    f"dataset.split {NAMED}": [f"{TABLE} dataset.split=part > partition.train_fraction=0.5"],
    "it is read with dataset.split=null": [
        f"{TABLE} dataset.split=part > dataset.data_seed=1",
        f"{TABLE} dataset.split=part > dataset.test_share=0.5",
    ],
    "it is read with partition.maps=random": [f"{LABELS} > partition.num_concepts=8"],
    "it is read with partition.maps=random or pool": [f"{LABELS} > partition.data_seed=5"],
    "nothing in partition.bank is drawn": [f"{IMAGES} > partition.data_seed=5"],
    "nothing in partition.bank is drawn, nor classes": [
        "partition=class_transform partition.classes=[1] > partition.data_seed=5"
    ],
    "it is not read with scenario.stragglers=0": ["scenario=unavailable > scenario.min_work=0.5"],
}


def rows(table: dict[str, list[str]]) -> list[tuple[str, str, str]]:
    """Job, what is typed and what is said."""
    return [(*one.split(" > "), said) for said, some in table.items() for one in some]  # type: ignore[misc]


@pytest.mark.thinned
@pytest.mark.parametrize(("job", "typed", "why"), rows(IDLE))
def test_a_value_without_effect_is_told(job: str, typed: str, why: str) -> None:
    config = composed(*job.split(), typed)
    places = Typed((*job.split(), typed)).places
    told = {text: idle(config, key, Objects()) for text, key in places}
    assert {text: words for text, words in told.items() if words} == ({typed: why} if why else {})


DBSCAN = "cluster_method=dbscan cluster_method.eps=0.5"
AGGLOMERATIVE = "algorithm=lcfl cluster_method=agglomerative"
SHARED: dict[str, list[str]] = {
    "": [
        "algorithm=lcfl cluster_method=dbscan > num_clusters=2",
        f"{AGGLOMERATIVE} > num_clusters=2",
        f"algorithm=ifca {DBSCAN} > num_clusters=2",
        "algorithm=pacfl > num_clusters=2",
        "algorithm=by_attribute algorithm.attribute=size > num_clusters=2",
        "algorithm=lcfl > common.warmup_participation=0.5",
        "algorithm=ifca aggregation=median > algorithm.aggregation=first_client",
        "algorithm=fedavg aggregation=multi_krum > common.aggregation=uniform",
        "algorithm=fedavg > common.aggregation=uniform",
        "algorithm=fedavg > scenario.selection=round_robin_first",
        "algorithm=fedavg task=regression task.loss_by=huber > task.delta=2.0",
        "algorithm=newcomers algorithm@algorithm.base=local > participation=0.5",
        "algorithm=fedavg > participation=0.5",
    ],
    "it is read with cluster_method.eps=null": [f"algorithm=lcfl {DBSCAN} > num_clusters=2"],
    "it is read with cluster_method.threshold=null": [
        f"{AGGLOMERATIVE} cluster_method.threshold=1 > num_clusters=2"
    ],
    "it is read with algorithm.method.threshold=null": [
        "algorithm=hcfl algorithm.method.threshold=1.0 > num_clusters=2",
        "algorithm=pacfl algorithm.method.threshold=9.0 > num_clusters=2",
    ],
    "it is read with algorithm.method.eps=null": ["algorithm=flux > num_clusters=2"],
    "it is read with algorithm.attribute=size": ["algorithm=by_attribute > num_clusters=2"],
    "it is read with algorithm.base.attribute=size": [
        "algorithm=finetune algorithm@algorithm.base=by_attribute > num_clusters=2"
    ],
    "it is read with algorithm.warmup.mode=federated": [
        "algorithm=lcfl warmup@algorithm.warmup=local > common.warmup_participation=0.5"
    ],
    "aggregation=median counts every participant alike": [
        "algorithm=ifca aggregation=median > common.aggregation=uniform"
    ],
    "aggregation.chosen=1 takes one update whole": [
        "algorithm=fesem aggregation=krum > common.baseline_aggregation=uniform"
    ],
    "with privacy every client is drawn by itself, with the probability participation": [
        "algorithm=fedavg privacy=client > scenario.selection=round_robin_first"
    ],
    "it is read with task.loss_by=huber": ["algorithm=fedavg task=regression > task.delta=2.0"],
    "after the warm-up, where algorithm.mu takes its place": [
        "algorithm=hcfl > solver.proximal=0.5",
        "algorithm=finetune algorithm@algorithm.base=hcfl > solver.proximal=0.5",
    ],
    "participants=all trains every client in every round": [
        "algorithm=last_local algorithm@algorithm.base=local > participation=0.5"
    ],
    "algorithm.averaging=gradient takes one gradient step per round": [
        "algorithm=ifca algorithm.averaging=gradient > solver.epochs=3"
    ],
}


@pytest.mark.thinned
@pytest.mark.parametrize(("job", "typed", "why"), rows(SHARED))
def test_a_shared_value_without_effect_wherever_it_leads_is_told(
    job: str, typed: str, why: str
) -> None:
    config = unresolved(*job.split(), typed)
    told = without_effect(config, composed(*job.split(), typed), Typed((typed,)))
    assert [line for line, _ in told] == ([f"{typed} has no effect: {why}"] if why else [])


@pytest.mark.parametrize("method", ["lcfed", "scaffold"])
def test_a_method_that_would_put_its_own_pull_in_place_of_a_typed_one_refuses_it(
    method: str,
) -> None:
    node = composed(f"algorithm={method}", "solver.proximal=0.1")["algorithm"]
    with pytest.raises(ConfigError, match=r"solver.proximal=0.1 is not allowed: 0, "):
        Objects().make(node, "algorithm")


def test_the_seed_of_a_bank_with_noise_has_an_effect() -> None:
    config = composed(IMAGES, "partition.bank=[identity,gaussian_noise 1]")
    assert idle(config, "partition.data_seed", Objects()) == ""


@pytest.mark.parametrize(
    ("job", "unused"),
    [
        ("algorithm=jgl", {"solver.epochs", "solver.steps"}),
        ("algorithm=jgl algorithm.local=solver", set()),
        ("algorithm=ifca algorithm.averaging=gradient", {"solver.epochs", "solver.steps"}),
        ("algorithm=local", {"participation", "clients_per_round"}),
        ("algorithm=local algorithm.participants=cohort", set()),
        ("algorithm=fedavg", set()),
    ],
)
def test_a_method_says_what_its_options_leave_unused(job: str, unused: set[str]) -> None:
    method = Objects().make(composed(*job.split())["algorithm"], "algorithm")
    assert set(traits_of(method).unused) == unused


def test_synthetics_alpha_changes_no_label() -> None:
    """W + a 1ᵀ and b + a 1 add the same number to every logit."""
    one, other = (Synthetic(alpha=a, num_devices=5, total=None).load() for a in (0.0, 4.0))
    assert torch.equal(one.x_train, other.x_train)
    assert torch.equal(one.y_train, other.y_train)
    assert len(one.y_train.unique()) > 1
    inputs = Synthetic(beta=4.0, num_devices=5, total=None).load()
    assert not torch.equal(one.x_train, inputs.x_train)


@pytest.mark.parametrize(
    "job", ["algorithm=fedgroup", f"algorithm=fesem {PRETRAINED}"], ids=["fedgroup", "fesem"]
)
def test_a_method_and_its_cold_start_make_equally_many_clusters(job: str) -> None:
    node = composed(*job.split(), "num_clusters=4", "algorithm.num_clusters=2")["algorithm"]
    with pytest.raises(ConfigError, match=r"num_clusters=2 is not allowed: 4, as many"):
        Objects().make(node, "algorithm")
    Objects().make({**node, "num_clusters": 4}, "algorithm")
