import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.apps.demo.char_model import Adam, CharModel
from holdfast.apps.demo.corpus import SYMBOLS, corpus_of

CORPUS = corpus_of(bytes(range(32, 127)) * 30)
MODEL = CharModel(hidden=8, seed=1)


def batch(*, rank=0, world_size=1, size=24, step=0):
    return CORPUS.batch(seed=0, step=step, size=size, rank=rank, world_size=world_size)


def gradient(model, part, whole):
    out = np.full_like(model.weights, np.nan)
    loss = model.gradient(part, whole=whole, out=out)
    return loss, out


@settings(max_examples=30)
@given(st.integers(0, 1000))
def test_the_gradient_is_the_slope_of_the_loss(seed):
    model = CharModel(hidden=8, seed=1)
    part = batch(step=seed)
    _, out = gradient(model, part, 24)
    direction = np.random.default_rng(seed).standard_normal(out.size, dtype=np.float32)
    direction /= np.linalg.norm(direction)
    start, pace = model.weights.copy(), np.float32(0.01)

    model.weights[:] = start + pace * direction
    above = model.loss(part)
    model.weights[:] = start - pace * direction
    below = model.loss(part)

    assert abs((above - below) / (2 * pace) - float(out @ direction)) < 2e-3


def test_every_layer_has_a_slope_of_its_own():
    _, out = gradient(MODEL, batch(), 24)
    ends = np.cumsum([SYMBOLS * 24, 16 * 24 * 8, 8, 8 * SYMBOLS, SYMBOLS])

    for layer in np.split(out, ends[:-1]):
        assert np.abs(layer).max() > 1e-4


@given(st.integers(1, 30))
def test_the_gradients_of_all_shares_add_up_to_that_of_the_batch(world_size):
    shares = [
        gradient(MODEL, batch(rank=rank, world_size=world_size), 24) for rank in range(world_size)
    ]
    loss, whole = gradient(MODEL, batch(), 24)

    np.testing.assert_allclose(sum(out for _, out in shares), whole, atol=1e-6)
    assert abs(sum(part for part, _ in shares) - loss) < 1e-5
    assert abs(MODEL.loss(batch()) - loss) < 1e-5


def test_the_same_seed_gives_the_same_weights_and_another_seed_others():
    assert np.array_equal(CharModel(hidden=8, seed=1).weights, MODEL.weights)
    assert not np.array_equal(CharModel(hidden=8, seed=2).weights, MODEL.weights)


def test_adam_follows_its_formula():
    gradients = [np.array([0.5, -2.0], dtype=np.float32), np.array([1.0, 3.0], dtype=np.float32)]
    weights = np.array([1.0, 1.0], dtype=np.float32)
    adam = Adam(2, rate=0.1)
    expected, mean, square = weights.astype(float), np.zeros(2), np.zeros(2)

    for step, slope in enumerate(gradients, start=1):
        adam.update(weights, slope, step=step)
        mean = 0.9 * mean + 0.1 * slope
        square = 0.999 * square + 0.001 * slope**2
        unbiased = mean / (1 - 0.9**step), square / (1 - 0.999**step)
        expected = expected - 0.1 * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)

    np.testing.assert_allclose(weights, expected, atol=1e-5)


def test_training_makes_the_loss_fall():
    model, adam = CharModel(hidden=8, seed=1), Adam(MODEL.weights.size)
    before = model.loss(CORPUS.held_out_batch())

    for step in range(400):
        _, out = gradient(model, batch(step=step), 24)
        adam.update(model.weights, out, step=step + 1)

    assert model.loss(CORPUS.held_out_batch()) < before / 2
