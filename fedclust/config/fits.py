"""What is refused of a job whose parts do not fit each other, in a line that names the key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fedclust.config.idle import idle
from fedclust.config.schema import objective_of
from fedclust.config.values import LOOKED_AT, Parts, by_class, placed
from fedclust.core.norms import AVERAGED, NORMS, OF_MODELS
from fedclust.core.solver import Solver, solvers_of
from fedclust.core.task import Classification, Task
from fedclust.core.traits import check_averages, or_says, traits_of
from fedclust.core.types import Federation
from fedclust.core.wrapper import Wrapper
from fedclust.helpers.errors import ConfigError, counted, require, typed
from fedclust.helpers.ranges import Range
from fedclust.metrics import of_another_task
from fedclust.metrics.recovery import OF_GROUPS
from fedclust.models.params import Layout


def check_privacy(parts: Parts) -> None:
    """Refuse what leaves something without noise."""
    config, algorithm, scenario = parts.config, parts.made["algorithm"], parts.made["scenario"]
    layer, traits = algorithm, traits_of(algorithm)
    while isinstance(layer, Wrapper) and traits_of(layer.base).unnoised == traits.unnoised:
        layer = layer.base  # who says so
    why = traits.unnoised if traits.averages else "what is no mean of updates"
    allowed = f"none, since {parts.called(layer)} is not private: clients send {why} without noise"
    allowed += or_says(layer, "an option aggregation and by unnoised = ''")
    require(not why, "privacy", parts.choice("privacy"), allowed)
    allowed = "mean with privacy, whose sums are of clipped updates"
    plain = parts.made["aggregation"] is None
    require(plain, "aggregation", parts.choice("aggregation"), allowed)
    for part in _within(algorithm):
        weights = getattr(part, "aggregation", "uniform")
        allowed = "uniform with privacy: numbers of examples are private too"
        require(weights == "uniform", "common.aggregation", weights, allowed)
    drawn = "with privacy: everybody is drawn with the probability participation"
    for key, free in (("clients_per_round", None), ("selection", "random")):
        number = getattr(scenario, key, free)
        name = key if config.get(key) == number else f"scenario.{key}"
        allowed = f"{'null' if free is None else free} {drawn}"
        require(number == free, name, number, allowed)


def check_compression(parts: Parts) -> None:
    """Refuse a method whose clients send no update that may arrive compressed."""
    for part in _stating(parts.made["algorithm"]):
        traits = traits_of(part)
        why = "" if traits.sends else "sends nothing that training has made"
        if traits.steps_by_gradients:
            why = f"sends gradients with {traits.steps_by_gradients}"
        why = why or traits.whole
        allowed = f"none, since {parts.called(part)} {why}"
        require(not why, "compression", parts.choice("compression"), allowed)


def check_clock(parts: Parts) -> None:
    """Refuse a budget of time where none is computed, and what a shorter waiting contradicts."""
    config, clock, hours = parts.config, parts.made["clock"], parts.config["stop"]["hours"]
    positive = Range(0, open_low=True)
    allowed = f"a number {positive.words}, or null"
    require(hours is None or positive.holds(hours), "stop.hours", hours, allowed)
    allowed = "null without a clock, which computes the time; add clock=devices"
    require(hours is None or clock is not None, "stop.hours", hours, allowed)
    for option, free in (("deadline", None), ("over", 0)):
        value = getattr(clock, option, free)
        allowed = f"{typed(f'clock.{option}', free)} with privacy, where everybody drawn takes part"
        require(value == free or parts.made["privacy"] is None, f"clock.{option}", value, allowed)
    over, selection = getattr(clock, "over", 0), config["scenario"].get("selection", "random")
    allowed = f"0 with scenario.selection={selection}: further clients are drawn at random"
    require(not over or selection == "random", "clock.over", over, allowed)


def check_parts(parts: Parts) -> None:
    """Refuse parts that do not fit each other, or the length of the job."""
    config, made, algorithm = parts.config, parts.made, parts.made["algorithm"]
    for group in ("server", "aggregation"):
        if made[group] is not None:
            check_averages(group, parts.choice(group), algorithm, parts.called(algorithm))
    for solver in solvers_of(algorithm):
        solver.check_rounds(config["rounds"])
    if made["privacy"] is not None:
        check_privacy(parts)
    if made["compression"] is not None:
        check_compression(parts)
    check_clock(parts)
    check_suits(made["task"], parts.called, **{group: made[group] for group in LOOKED_AT})


def check_objective(parts: Parts, federations: Mapping[int, Federation]) -> None:
    """ConfigError for an objective, or a metric of the report, that the job cannot record."""
    config, task = parts.config, parts.made["task"]
    name = objective_of(config)
    own = [score.name for score in (task.score, *task.beside)]
    report = config["report"] if isinstance(config["report"], Mapping) else {}
    for key, metric in (("objective", name), ("report.metric", report.get("metric"))):
        fits = metric is None or not of_another_task(str(metric), own)
        require(fits, key, metric, f"a score of this task, such as {', '.join(own)}")
    held_out = config["validation"] > 0 or not name.startswith("validation_")
    require(held_out, "objective", name, "another metric where validation=0 holds out no examples")
    grouped = all(bool((fed.group >= 0).any()) for fed in federations.values())
    allowed = "another metric where the clients have no true groups to recover"
    require(grouped or name not in OF_GROUPS, "objective", name, allowed)


def check_computed(parts: Parts, layout: Layout, federations: Mapping[int, Federation]) -> None:
    """Refuse what only the data and the model show."""
    config, made = parts.config, parts.made
    check_objective(parts, federations)
    if (privacy := made["privacy"]) is not None:
        num_clients = min(fed.num_clients for fed in federations.values())
        k = config["algorithm"].get("num_clusters", 1)
        num_models = 1 if idle(config, "algorithm.num_clusters", parts.objects) else k
        share = getattr(made["scenario"], "participation", config["participation"])
        privacy.check(share, num_clients, layout.num_buffers, num_models)
    check_statistics(config["norm"], made["algorithm"], layout, parts.called)


def check_batches(solver: Solver, federations: Mapping[int, Federation]) -> None:
    """Refuse batches of one example, which a normalisation cannot take in training."""
    for seed, fed in federations.items():
        count = fed.train.count.cpu()
        batch = count if solver.batch_size is None else count.clamp(max=solver.batch_size)
        short = batch == 1
        if solver.batch_size is not None and solver.epochs is not None and not solver.drop_last:
            short |= (count > 0) & (count % solver.batch_size == 1)
        for client in short.nonzero().squeeze(1).tolist()[:1]:
            number = int(count[client])
            alone = "another partition" if number == 1 else "another one"
            if number > 1 != solver.batch_size:
                alone += ", or solver.drop_last=true"
            raise ConfigError(
                f"solver.batch_size={solver.batch_size} is not allowed: of the "
                f"{counted(number, 'training example')} of client {client} in seed {seed} a batch "
                "has a single one, which the model's normalisation cannot take; take " + alone
            )


def check_statistics(
    norm: str, algorithm: Any, layout: Layout, called: Callable[[Any], str] = by_class
) -> None:
    """Refuse running statistics of a model that the method cannot move, or not as `norm` says."""
    buffers = layout.buffers
    mode = NORMS[norm]
    keeps = bool(buffers) or not mode.own_test
    require(keeps, "norm", norm, f"{OF_MODELS}, since the model keeps no running statistics")
    for part in _stating(algorithm):
        name, traits = called(part), traits_of(part)
        option = traits.steps_by_gradients
        allowed = f"one without running statistics, because {option} sends gradients"
        given = ", ".join(buffers[:1])
        require(not (given and option), "model", given, f"{allowed}, which move none")
        several = traits.several if mode.stay else ""
        require(not several, "norm", norm, f"{AVERAGED}, since {name} {several}")
        mixed = mode.own_test and traits.serves_mixtures
        require(not mixed, "norm", norm, f"{OF_MODELS}, since {name} serves mixtures of models")


def check_suits(task: Task, called: Callable[[Any], str] = by_class, /, **parts: Any) -> None:
    """Refuse parts that another task has what they look at."""
    for key, part in parts.items():
        for one in _stating(part):
            traits = traits_of(one)
            for needed, fits, what in (
                (traits.needs_classes, task.targets == "classes", "looks at classes"),
                (
                    traits.needs_softmax,
                    task.softmax,
                    "reads the losses of a softmax without weights",
                ),
            ):
                which, given = "task", type(task).__name__.lower()
                allowed = "as task=classification has them; take another"
                if isinstance(task, Classification):
                    option = "label_smoothing" if task.class_weight is None else "class_weight"
                    which, given = f"task.{option}", getattr(task, option)
                    allowed = (
                        "so task.class_weight=null and task.label_smoothing=0, or another part"
                    )
                name = called(one)
                if "=" not in name:
                    name = f"{name} ({key})"
                require(fits or not needed, which, given, f"{name} {what}, {allowed}")


def _stating(part: Any) -> Iterator[Any]:
    """The parts within that say something of themselves: a layer says what its base does."""
    return (one for one in _within(part) if not isinstance(one, Wrapper))


def _within(part: Any) -> Iterator[Any]:
    """A part and all parts that its fields hold."""
    return (one for _, one in placed(part))
