"""What a method cannot do is one line: when it is built, or before the first round."""

from __future__ import annotations

from typing import Any

import pytest
from planted import configured, engine_for, federation, rounds_of

from fedclust.helpers.errors import ConfigError

GRADIENT = "algorithm.averaging=gradient"
# of several options the last is the wrong one
WRONG: dict[str, list[str]] = {
    "apfl": ["solver.momentum=0.9"],
    "cfl_gp": ["num_clusters=auto"],
    "cfl_mgd": [
        *("num_clusters=0", "algorithm.momentum_gradient=lagged", "algorithm.solver.momentum=1"),
        *("algorithm.momentum_owner=server", f"{GRADIENT} solver.weight_decay=0.1"),
        "algorithm.restart_fraction=0.35",
    ],
    "clove": ["num_clusters=auto", "algorithm.stable_rounds=0"],
    "fedavg": ["algorithm.aggregation=mean", "solver.momentum=0 solver.keep=client"],
    "fedbcd": ["algorithm.served=local"],
    "feddrift": ["algorithm.delta=1.5"],
    "fedem": ["num_clusters=0"],
    "fedgwc": ["algorithm.eps=0"],
    "fedper": ["algorithm.personal_layers=0"],
    "fedsoft": ["num_clusters=0"],
    "fesem": [
        *("num_clusters=0", "algorithm.first_assignment=random", "algorithm.aggregation=median"),
        *("algorithm.cold_start.grouping=best", "algorithm.shift.distance=emd"),
    ],
    "finetune": ["algorithm.epochs=-1"],
    "flexcfl": [
        *("algorithm.cold_start.scale=0", "algorithm.cold_start.grouping=kmeans"),
        *("algorithm.group_init=mean", "algorithm.joining=nearest", "algorithm.shift.fraction=-1"),
        *("algorithm.inter_group.rate=-1", "algorithm.aggregation=median"),
        "algorithm.aggregation=first_client",
    ],
    "gradcos": ["algorithm.metric.gradient=batch"],
    "ifca": [
        *("num_clusters=0", "algorithm.restart_fraction=0.35", "algorithm.start=random"),
        "num_clusters=2 algorithm.start=shared algorithm.restart_fraction=0.3",
        *(f"{GRADIENT} solver.momentum=0.9", f"{GRADIENT} solver.weight_decay=0.1"),
        *("+algorithm.migration=true", "algorithm.cluster_choice=last"),
    ],
    "ifca_random": [GRADIENT],
    "jgl": [
        *("algorithm.gradient_weight=1.1", "algorithm.gradient_weight=-0.1", "num_clusters=0"),
        *("algorithm.similarity=dot", "algorithm.empty_cluster=fill", "solver.momentum=0.9"),
        *("solver.weight_decay=0.1", "algorithm.local=solver algorithm.loss_reduction=sum"),
    ],
    "lcfl": [
        *("algorithm.warmup.rounds=0", "algorithm.warmup.mode=none"),
        "algorithm.warmup.participation=1.5",
    ],
    "local": ["algorithm.participants=some"],
    "pacfl": ["algorithm.num_vectors=0"],
    "pfedme": [
        *("algorithm.solver.proximal=0", "algorithm.local_lr=0.2", "algorithm.local_rounds=0"),
        "algorithm.solver.epochs=1 algorithm.solver.steps=null",
    ],
    "sattler_cfl": [
        f"algorithm.{one}" for one in ("eps1=-1", "eps2=-0.1", "gamma_max=1", "memory=0")
    ],
    "scaffold": ["solver.momentum=0.9", "solver.proximal=0.1", "solver.weight_decay=0.1"],
    "stocfl": ["algorithm.similarity=3", "algorithm.direction=sampled"],
}


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("method", "options"), [(method, one) for method, some in WRONG.items() for one in some]
)
def test_a_wrong_option_is_one_line_that_names_its_key(method: str, options: str) -> None:
    key = options.split()[-1].split("=")[0].removeprefix("+").removeprefix("algorithm.")
    with pytest.raises(
        ConfigError, match=rf"(^|\W){key}=\S+ .*is not allowed|{key}=\S+ is"
    ) as error:
        configured(method, *options.split())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("apfl", "solver.momentum=0.9", r"solver\.momentum=0\.9 .* APFL"),
        ("fesem", "algorithm.shift.distance=emd", r"algorithm\.shift\.distance=emd .* released"),
        ("ifca", "+algorithm.migration=true", r"algorithm\.migration=True .* has the keys"),
        ("ifca", "algorithm.cluster_choice=last", "cluster_choice=last .* train_loss, test_loss"),
        ("pfedme", "algorithm.solver.proximal=0", r"algorithm\.solver\.proximal=0.* lambda"),
        ("pfedme", "algorithm.local_lr=0.2", r"algorithm\.local_lr=0\.2 .* below 0\.133"),
    ],
)
def test_it_says_what_is_allowed(method: str, options: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        configured(method, options)


CLIENTS = "at most the 12 clients"


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("fedclust", "algorithm.layers=2", r"algorithm\.layers=2 is not allowed: at most the"),
        ("feddrift", "algorithm.max_models=4", r"algorithm\.max_models=4 .* at least 12"),
        ("fedper", "", "personal_layers=1 .* below the model's 1 layers"),
        ("feroma", "algorithm.descriptor.directions=7", r"descriptor\.directions=7 .* at most"),
        ("hcfl", "algorithm.layers=body", r"algorithm\.layers=body .* a single layer"),
        ("lcfed", "algorithm.layers=body", r"algorithm\.layers=body .* a single layer"),
        ("ocfl", "algorithm.method.min_cluster_size=13", f"min_cluster_size=13 .* {CLIENTS}"),
        ("lcfl", "cluster_metric=edc cluster_metric.num_components=13", CLIENTS),
        ("fesem", "num_clusters=13 algorithm.first_assignment=kmeans_pretrained", CLIENTS),
        *(
            (method, "num_clusters=13", f"num_clusters=13 .* {CLIENTS}")
            for method in ("cfl_gp", "fedclust", "flexcfl", "flexcfl_rcc", "lcfed", "pacfl")
        ),
    ],
)
def test_what_clients_and_model_do_not_have_is_refused_before_round_0(
    method: str, options: str, said: str
) -> None:
    fed = federation()
    rnd, algorithm = rounds_of(fed, 1)[0], configured(method, *options.split())
    with pytest.raises(ConfigError, match=said) as error:
        algorithm.init(engine_for(fed).at(rnd), rnd)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("method", "rounds", "said"),
    [
        ("feroma", 6, "nobody gets a mix"),
        ("flux", 5, "no clusters were formed: clustering begins after 5 rounds"),
        ("hcfl", 5, "no clusters were formed"),
    ],
)
def test_a_run_that_is_too_short_is_remarked_on(method: str, rounds: int, said: str) -> None:
    algorithm: Any = configured(method)
    assert said in algorithm.remark(rounds)
    assert algorithm.remark(rounds + 1) == ""
