"""Small language models of the help texts: their text, training, records."""

import math

import pytest
import torch

from attnbook.data.libreoffice import encode_characters
from attnbook.models.transformer import Size
from attnbook.records import read_record
from attnbook.training.language_modeling import (
    RECORD_NAME,
    UNKNOWN,
    LanguageModelRecipe,
    build_character_model,
    compute_guessing_losses,
    compute_held_out_loss,
    cut_windows,
    decode_text,
    encode_text,
    load_character_model,
    train_language_model,
)

SIZE = Size(32, 4, 128, 2)


def test_encoding_and_decoding_a_text_are_inverse():
    text = "To insert a page break,\nchoose Insert."
    assert decode_text(encode_text(text)[0]) == text
    assert decode_text(encode_text("a\N{SNOWMAN}b")[0]) == f"a{UNKNOWN}b"
    assert int(encode_text("\N{SNOWMAN}")) == encode_characters("train")[1] - 1


def test_targets_are_shifted_by_one_position():
    read, wanted = cut_windows("valid", torch.tensor([0, 5, 100]), 11)
    assert torch.equal(read[:, 1:], wanted[:, :-1])
    text = encode_characters("valid")[0]
    assert torch.equal(wanted[2], text[101:112])


class Even(torch.nn.Module):
    """Guesses every symbol alike."""

    def __init__(self):
        super().__init__()
        self.place = torch.nn.Parameter(torch.zeros(()))  # where it computes

    def forward(self, ids):
        return torch.zeros(*ids.shape, encode_characters("train")[1])


def test_held_out_windows_are_spread_over_the_text():
    read, model = [], Even()
    model.register_forward_hook(lambda _, given, __: read.append(given[0]))
    compute_held_out_loss(model, "valid", 8, count=5)
    text = encode_characters("valid")[0]
    gap = (len(text) - 9) // 5
    wanted = torch.stack([text[i * gap : i * gap + 8] for i in range(5)])
    assert torch.equal(torch.cat(read), wanted)


def test_the_loss_of_uniform_guesses_is_the_logarithm_of_the_symbols():
    even = math.log(encode_characters("train")[1])
    assert compute_held_out_loss(Even(), "valid", 64, 16) == pytest.approx(even)
    guesses = compute_guessing_losses("test")
    assert guesses["even"] == pytest.approx(even)
    assert guesses["frequency"] < even


def test_training_is_the_same_from_the_same_seed():
    curves = []
    for seed in (1, 1, 2):
        losses, model = [], build_character_model(1, SIZE)
        recipe = LanguageModelRecipe(3, 3e-3, size=4, window=16, clip=1.0)
        train_language_model(
            model, recipe, seed, [lambda step, loss, to=losses: to.append(loss)]
        )
        curves.append(losses)
    assert curves[0] == curves[1] != curves[2]


def test_the_shipped_model_has_the_recorded_loss():
    record = read_record(RECORD_NAME)
    model = load_character_model()
    loss = compute_held_out_loss(model, "test", record["window"])
    assert loss == pytest.approx(record["results"]["test_loss"], abs=1e-3)
    assert loss < 0.6 * record["results"]["guesses"]["frequency"]
