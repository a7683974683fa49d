import torch

from fedclust.datasets.digits import Digits


def test_the_cut_is_fixed_stratified_and_complete() -> None:
    one, two = Digits().load(), Digits().load()
    assert torch.equal(one.x_train, two.x_train)
    assert torch.equal(one.y_test, two.y_test)
    assert len(one.x_train) + len(one.x_test) == 1797
    assert (len(one.x_train), len(one.x_test)) == (1442, 355)
    share = one.y_test.bincount() / (one.y_train.bincount() + one.y_test.bincount())
    assert float((share - 0.2).abs().max()) < 0.005
    assert one.shape == (1, 8, 8)


def test_pixels_are_scaled_to_the_unit_interval() -> None:
    dataset = Digits().load()
    assert dataset.x_train.dtype == torch.uint8
    inputs = dataset.x_train * dataset.scale + dataset.shift
    assert float(inputs.min()) == 0
    assert float(inputs.max()) == 1


def test_a_nearest_mean_classifier_reads_the_digits() -> None:
    dataset = Digits().load()
    x = dataset.x_train.flatten(1).float()
    mean = torch.stack([x[dataset.y_train == c].mean(0) for c in range(10)])
    guess = torch.cdist(dataset.x_test.flatten(1).float(), mean).argmin(1)
    # images and labels belong together
    assert float((guess == dataset.y_test).float().mean()) > 0.85
