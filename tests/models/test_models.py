"""Every shipped model: sizes, layers, initialisation, and what it says of images it cannot take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hydra
import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.nn import functional as F

from fedclust.helpers.errors import ConfigError
from fedclust.models.cnn import cnn, flex_femnist_cnn, tf_cifar
from fedclust.models.mlp import mlp
from fedclust.models.params import flatten, layout, unflatten
from fedclust.models.sequence import KNOWN, Model

CONF = Path(__file__).parents[2] / "conf" / "model"
# sequences of known layers; test_resnets.py, test_named.py and datasets/test_tokens.py have others
OTHERS = {*("resnet9", "resnet18", "torchvision", "timm"), "gru", "lstm", "text_cnn", "transformer"}
MODELS = sorted({path.stem for path in CONF.glob("*.yaml")} - OTHERS)
GREY, COLOUR = (1, 28, 28), (3, 32, 32)
PUBLISHED = {
    "cnn_femnist_tiny": (GREY, 417_482),
    "cnn_cifar_small": (COLOUR, 610_142),
    "mlp200": (GREY, 159_010),
    "tf_cifar": ((3, 24, 24), 1_068_298),
    "mclr": (GREY, 7_850),
    "mlp128": (GREY, 101_770),
    "mlp512": (GREY, 407_050),
    "flex_mnist_cnn": (GREY, 50_186),
    "flex_femnist_cnn": (GREY, 325_578),
    "flex_fmnist_cnn": (GREY, 3_274_634),
    "jgl_mlp": (GREY, 178_110),
    "jgl_cnn": (GREY, 1_663_370),
}
TOO_SMALL_AT_8 = {"cnn_cifar_small": 16, "flex_femnist_cnn": 13}


def load(name: str, shape: tuple[int, ...], num_classes: int = 10, **changes: Any) -> Any:
    """The model of conf/model/<name>.yaml with other options."""
    config = OmegaConf.merge(OmegaConf.load(CONF / f"{name}.yaml"), changes)
    target, settings = config.pop("_target_"), OmegaConf.to_container(config)
    return hydra.utils.get_method(target)(shape, num_classes, **settings)


def shipped(name: str, shape: tuple[int, ...], num_classes: int = 10, **changes: Any) -> Model:
    model = load(name, shape, num_classes, **changes)
    assert isinstance(model, Model)
    return model


def drawn(model: Model, seed: int = 0) -> dict[str, Tensor]:
    return unflatten(model.draw(torch.Generator().manual_seed(seed)), layout(model))


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_counts_are_the_published_ones(name: str) -> None:
    shape, count = PUBLISHED[name]
    assert layout(shipped(name, shape)).num_params == count


def test_softmax_regression_on_features() -> None:
    assert layout(shipped("mclr", (60,))).num_params == 610


@pytest.mark.thinned
@pytest.mark.parametrize("name", MODELS)
def test_shipped_models(name: str) -> None:
    """As the config builds it: known layers, whose shapes are what they return."""
    config = OmegaConf.load(CONF / f"{name}.yaml")
    shape = PUBLISHED.get(name, (GREY, 0))[0]
    model = hydra.utils.instantiate(config, in_shape=shape, num_classes=7)
    assert all(type(layer) in KNOWN for layer in model)
    assert (CONF / f"{name}.yaml").read_text().startswith("# ")
    flat = model.draw(torch.Generator().manual_seed(0))
    assert flat.shape == (layout(model).num_params,)
    assert flat.dtype == torch.float32
    nn.utils.vector_to_parameters(flat, model.parameters())
    x = torch.rand(2, *shape)
    assert model.shapes[0] == shape
    for i, layer in enumerate(model):
        assert tuple(x.shape[1:]) == model.shapes[i]
        x = layer(x)
    assert tuple(x.shape[1:]) == model.shapes[-1] == (7,)
    assert x.std() > 0


@pytest.mark.parametrize("name", MODELS)
def test_small_images_fit_or_are_refused_in_one_line(name: str) -> None:
    if name not in TOO_SMALL_AT_8:
        assert shipped(name, (1, 8, 8)).shapes[-1] == (10,)
        return
    side = TOO_SMALL_AT_8[name]
    with pytest.raises(ConfigError, match=rf"at least \(1, {side}, {side}\).*\(1, 8, 8\)") as error:
        shipped(name, (1, 8, 8))
    assert "\n" not in str(error.value)
    assert shipped(name, (1, side, side)).shapes[-1] == (10,)
    with pytest.raises(ConfigError, match="at least"):
        shipped(name, (1, side - 1, side))


@pytest.mark.parametrize("name", ["cnn", "flex_femnist_cnn", "tf_cifar"])
def test_convolutions_refuse_feature_vectors(name: str) -> None:
    with pytest.raises(ConfigError, match="needs images"):
        shipped(name, (60,))


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("mlp", "hidden", [0]),
        ("mlp", "l2", -1.0),
        ("mlp", "init", "xavier"),
        ("cnn", "channels", [0]),
        ("cnn", "kernel", 0),
        ("cnn", "padding", 5),
        ("cnn", "hidden", [0]),
        ("cnn", "dropout", 1.0),
        ("flex_femnist_cnn", "channels", [0]),
        ("flex_femnist_cnn", "hidden", [0]),
        ("flex_femnist_cnn", "dropout", -0.1),
        ("flex_femnist_cnn", "l2", -0.1),
        ("tf_cifar", "l2", -0.1),
    ],
)
def test_values_out_of_range_name_their_key(name: str, key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"^model\.{key}=") as error:
        shipped(name, (1, 28, 28), **{key: value})
    assert "\n" not in str(error.value)


def test_torch_initialisation_is_that_of_the_layers() -> None:
    model = mlp((1, 4, 4), 3, hidden=[5], init="torch")
    values = drawn(model, seed=11)
    torch.manual_seed(11)
    for place, layer in ((1, nn.Linear(16, 5)), (3, nn.Linear(5, 3))):
        assert torch.equal(values[f"{place}.weight"], layer.weight)
        assert torch.equal(values[f"{place}.bias"], layer.bias)
    convolution = drawn(cnn(GREY, 3, channels=[4], kernel=5, padding=2, hidden=[]), seed=12)
    torch.manual_seed(12)
    reference = nn.Conv2d(1, 4, 5)
    assert torch.equal(convolution["0.weight"], reference.weight)
    assert torch.equal(convolution["0.bias"], reference.bias)


def test_keras_initialisation_is_glorot_uniform_with_zero_biases() -> None:
    values = drawn(shipped("flex_mnist_cnn", GREY))
    fans = {"0": 9 * (1 + 32), "3": 9 * (32 + 64), "8": 3136 + 10}
    for place, fan in fans.items():
        bound = (6 / fan) ** 0.5
        weight = values[f"{place}.weight"]
        assert 0.95 * bound < float(weight.abs().max()) <= bound
        assert float(weight.var()) == pytest.approx(bound**2 / 3, rel=0.2)
        assert not values[f"{place}.bias"].any()


def test_tf_cifar_initialisation() -> None:
    values = drawn(shipped("tf_cifar", (3, 24, 24)))
    weights = [value for name, value in values.items() if name.endswith("weight")]
    biases = [value for name, value in values.items() if name.endswith("bias")]
    for weight, std in zip(weights, (0.05, 0.05, 0.04, 0.04, 1 / 192), strict=True):
        assert float(weight.abs().max()) <= 2 * std
        # of a normal cut at two std
        assert float(weight.std()) == pytest.approx(0.8796 * std, rel=0.05)
    for bias, value in zip(biases, (0, 0.1, 0.1, 0.1, 0), strict=True):
        assert torch.equal(bias, torch.full_like(bias, value))


@pytest.mark.thinned
@pytest.mark.parametrize("name", MODELS)
def test_drawing_uses_the_given_generator_only(name: str) -> None:
    model = shipped(name, PUBLISHED.get(name, (GREY, 0))[0])
    torch.manual_seed(0)
    state = torch.get_rng_state()
    one, two, other = (model.draw(torch.Generator().manual_seed(seed)) for seed in (5, 5, 6))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_building_a_model_leaves_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    shipped("cnn", GREY)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_model_of_any_size_is_built_in_no_memory() -> None:
    model = mlp((784,), 10, hidden=[1_000_000, 1_000_000])  # 4 TB as numbers
    assert layout(model).num_params == 1_000_796_000_010
    assert all(value.untyped_storage().nbytes() == 4 for value in model.parameters())


@pytest.mark.parametrize(
    ("name", "coefficient", "widths"),
    [
        ("mclr", 0.001, [10]),
        ("mlp128", 0.001, [128, 10]),
        ("mlp512", 0.001, [512, 10]),
        ("flex_femnist_cnn", 0.001, [128, 10]),
        ("tf_cifar", 0.002, [384, 192]),
        ("flex_mnist_cnn", 0.0, []),
        ("mlp200", 0.0, []),
    ],
)
def test_penalised_kernels(name: str, coefficient: float, widths: list[int]) -> None:
    model = shipped(name, PUBLISHED[name][0])
    parameters = dict(model.named_parameters())
    assert [len(parameters[key]) for key in model.l2] == widths
    assert all(parameters[key].ndim == 2 for key in model.l2)
    assert set(model.l2.values()) <= {coefficient}


def test_strided_same_padding_is_tensorflows() -> None:
    """24 to 12 with a 5 x 5 kernel: one row above and left, two below and right."""
    model = flex_femnist_cnn(GREY, 10, channels=[32, 64], hidden=[128], dropout=0.4, l2=0.0)
    pads = [layer.padding for layer in model if isinstance(layer, nn.ZeroPad2d)]
    assert pads == [(1, 2, 1, 2), (1, 2, 1, 2)]
    sides = [shape[1] for shape in model.shapes if len(shape) == 3]
    assert sorted(set(sides), reverse=True) == [28, 27, 26, 24, 12, 11, 10, 8, 4]
    odd = flex_femnist_cnn((1, 29, 29), 10, channels=[32, 64], hidden=[128], dropout=0.0, l2=0.0)
    assert not any(isinstance(layer, nn.ZeroPad2d) for layer in list(odd)[:6])
    assert odd[4].padding == (2, 2)


def test_tf_cifar_pools_past_the_right_and_bottom_edge() -> None:
    model = tf_cifar((3, 24, 24), 10, channels=[64, 64], hidden=[384, 192], l2=0.0)
    pools = [layer for layer in model if isinstance(layer, nn.MaxPool2d)]
    x = torch.randn(1, 1, 24, 24)
    padded = F.pad(x, (0, 1, 0, 1), value=float("-inf"))
    assert torch.equal(pools[0](x), F.max_pool2d(padded, 3, 2))
    assert [shape[1] for shape in model.shapes if len(shape) == 3] == [
        24,
        24,
        24,
        12,
        12,
        12,
        12,
        12,
        6,
    ]


def test_tf_cifar_response_norm_is_the_tutorials() -> None:
    """x / (1 + 0.001/9 · sum of squares over four channels either side)^0.75."""
    norm = next(
        layer
        for layer in tf_cifar((3, 24, 24), 10, channels=[64, 64], hidden=[384, 192], l2=0.0)
        if isinstance(layer, nn.LocalResponseNorm)
    )
    x = 30 * torch.randn(1, 64, 2, 2)
    squares = F.pad(x.square(), (0, 0, 0, 0, 4, 4)).unfold(1, 9, 1).sum(-1)
    torch.testing.assert_close(norm(x), x / (1 + 0.001 / 9 * squares) ** 0.75)


def test_dropout_multiplies_by_the_given_masks_only() -> None:
    model = shipped("flex_mnist_cnn", (1, 8, 8))
    nn.utils.vector_to_parameters(model.draw(torch.Generator().manual_seed(0)), model.parameters())
    x = torch.rand(3, 1, 8, 8)
    assert model.dropout == {6: 0.5}
    assert model.training
    assert torch.equal(model(x), model(x))
    ones, none = ({6: torch.full((3, *model.shapes[6]), value)} for value in (1.0, 0.0))
    assert torch.equal(model(x, ones), model(x))
    torch.testing.assert_close(model(x, none), model[-1].bias.expand(3, 10))


@pytest.mark.parametrize("widths", ["abc", 7, [3.5], [0], [4, "b"]])
def test_widths_are_a_list_of_numbers(widths: Any) -> None:
    with pytest.raises(ConfigError, match=r"model\.channels=.* is not allowed: a list of widths"):
        cnn(GREY, 10, channels=widths, kernel=3, padding=1, hidden=[])
    with pytest.raises(ConfigError, match=r"model\.hidden=.* is not allowed: a list of widths"):
        mlp(GREY, 10, hidden=widths)


def test_order_is_that_of_parameters() -> None:
    model = mlp((1, 2, 3), 4, hidden=[5])
    where = layout(model)
    flat = torch.arange(float(where.num_params))
    nn.utils.vector_to_parameters(flat, model.parameters())
    views = unflatten(flat, where)
    assert list(views) == [name for name, _ in model.named_parameters()]
    for name, value in model.named_parameters():
        assert torch.equal(views[name], value)


def test_named_tensors_are_views_and_flatten_is_the_inverse() -> None:
    where = layout(mlp((6,), 4, hidden=[5]))
    flat = torch.randn(2, 3, where.num_params)
    views = unflatten(flat, where)
    assert {name: tuple(value.shape[2:]) for name, value in views.items()} == dict(
        zip(where.names, where.shapes, strict=True)
    )
    assert torch.equal(flatten(views, where, batch_dims=2), flat)
    views["0.bias"].zero_()
    assert int((flat == 0).sum()) == 2 * 3 * 5


def test_wrong_number_of_parameters() -> None:
    with pytest.raises(ValueError, match="got 3 parameters, the model has 8"):
        unflatten(torch.zeros(3), layout(mlp((3,), 2, hidden=[])))
