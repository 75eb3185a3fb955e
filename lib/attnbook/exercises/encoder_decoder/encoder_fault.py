"""Exercise: find the fault of an encoder by experiments on it.

Source: the three faults are those of keon/seq2seq PR 32, of
    spro/practical-pytorch issue 149, and of a reshape without a transpose.
Axes: B batch, S source symbols, M memory width
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, shuffle_cases

SYMBOLS, WIDTH, HIDDEN = 7, 3, 5  # symbol 0 is padding


class SmallEncoder(nn.Module):
    """A bidirectional GRU and a function that makes the context of it.

    Args:
        rng: draws the weights.
        collect: from the encoder, source and lengths to contexts (B, M).
    """

    def __init__(self, rng: torch.Generator, collect: Callable):
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, WIDTH)
        self.recurrent = nn.GRU(WIDTH, HIDDEN, batch_first=True, bidirectional=True)
        self.double()
        with torch.no_grad():
            for weight in self.parameters():
                weight.copy_(draw_normal(rng, *weight.shape, dtype=torch.float64))
        self.collect = collect

    def forward(
        self, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, "B M"]:
        """Return a context vector for each source."""
        return self.collect(self, source, lengths).detach()

    def pack(self, source: Tensor, lengths: Tensor):
        """Return the embedded source as a packed batch."""
        return pack_padded_sequence(
            self.embed(source),
            lengths,
            batch_first=True,
            enforce_sorted=False,
        )


def concatenate(last: Tensor) -> Tensor:
    """Return the final states (2, B, N) as contexts (B, 2N)."""
    return last.transpose(0, 1).flatten(1)


def encode_packed(model, source, lengths):
    """Return the states of both directions at the true ends."""
    return concatenate(model.recurrent(model.pack(source, lengths))[1])


def encode_one_by_one(model, source, lengths):
    """Encode every source separately, without padding."""
    rows = zip(source, lengths.tolist(), strict=True)
    return torch.cat(
        [concatenate(model.recurrent(model.embed(row[None, :n]))[1]) for row, n in rows]
    )


def encode_unpacked(model, source, lengths):
    """Run both directions over the padding."""
    return concatenate(model.recurrent(model.embed(source))[1])


def unpack_backward_direction(model, source, lengths):
    """Run only the backward direction over the padding."""
    good, bad = (
        encode_packed(model, source, lengths),
        encode_unpacked(model, source, lengths),
    )
    return torch.cat([good[:, :HIDDEN], bad[:, HIDDEN:]], dim=1)


def reshape_directions(model, source, lengths):
    """Reshape (2, B, N) without a transpose: two sequences share a row."""
    last = model.recurrent(model.pack(source, lengths))[1]
    return last.reshape(len(source), -1)


def mix_with_next_sequence(model, source, lengths):
    """Take the backward half from the next sequence of the batch."""
    good = encode_packed(model, source, lengths)
    return torch.cat([good[:, :HIDDEN], good[:, HIDDEN:].roll(1, 0)], dim=1)


def compute_states(model, source, lengths):
    """Return the states (B, S, 2N) of a packed batch."""
    found = model.recurrent(model.pack(source, lengths))[0]
    return pad_packed_sequence(found, batch_first=True)[0]


def take_last_position(model, source, lengths):
    """Take both directions at the last real position."""
    return compute_states(model, source, lengths)[
        torch.arange(len(source)), lengths - 1
    ]


def take_first_position(model, source, lengths):
    """Take both directions at the first position."""
    return compute_states(model, source, lengths)[:, 0]


def reads_padding(model, source, lengths) -> bool:
    """Return whether two more columns of padding change a context vector."""
    wider = F.pad(source, (0, 2))
    return not torch.allclose(model(wider, lengths), model(source, lengths))


def mixes_sequences(model, source, lengths) -> bool:
    """Return whether a sequence has another context vector without the others.

    It keeps its padding, so that only one thing changes.
    """
    rows = range(len(source))
    alone = [model(source[b : b + 1], lengths[b : b + 1]) for b in rows]
    return not torch.allclose(torch.cat(alone), model(source, lengths))


def changes_alone(model, source, lengths) -> bool:
    """Tell whether a source alone, without padding, has another context."""
    alone = [
        model(row[None, :n], torch.tensor([n]))
        for row, n in zip(source, lengths.tolist(), strict=True)
    ]
    return not torch.allclose(torch.cat(alone), model(source, lengths))


def ignores_symbol(model, source, lengths) -> bool:
    """Return whether an entry of a context vector ignores a symbol.

    The symbols of the first sequence change one at a time.
    """
    row, n = source[:1, : int(lengths[0])], lengths[:1]
    before = model(row, n)  # (1, M)
    for position in range(row.shape[1]):
        changed = row.clone()
        changed[0, position] = changed[0, position] % 6 + 1  # another symbol
        if (model(changed, n) == before).any():
            return True
    return False


def encoder_fault(
    model: nn.Module, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]
) -> Bool[Tensor, "3"]:
    """Return what is wrong with an encoder: three entries, in this order.

    Context vectors depend on padding; they depend on the other sequences of
    the batch; an entry of a context vector ignores a symbol of its sequence.
    """
    tests = reads_padding, mixes_sequences, ignores_symbol
    return torch.tensor([test(model, source, lengths) for test in tests])


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Sound encoders, and each fault in two forms."""

    def case(tries, collect, *lengths):
        n = torch.tensor(lengths)
        ids = torch.randint(1, SYMBOLS, (len(n), 5), generator=rng)
        source = ids.masked_fill(torch.arange(5) >= n[:, None], 0)
        return Case(tries, (SmallEncoder(rng, collect), source, n))

    cases = (
        case("with a sound encoder", encode_packed, 3, 5, 2),
        case("with another sound encoder", encode_one_by_one, 4, 5, 2),
        case("with an encoder that is not packed", encode_unpacked, 3, 5, 4),
        case(
            "with an encoder whose backward direction is not packed",
            unpack_backward_direction,
            4,
            2,
            5,
        ),
        case("with a reshape that mixes sequences", reshape_directions, 4, 5, 2),
        case(
            "with an encoder that combines halves of different sequences",
            mix_with_next_sequence,
            3,
            5,
            2,
        ),
        case(
            "with both directions taken at the last position",
            take_last_position,
            5,
            3,
            4,
        ),
        case(
            "with both directions taken at the first position",
            take_first_position,
            4,
            5,
            3,
        ),
    )
    return shuffle_cases(cases, rng)


def find_no_fault(model, source, lengths) -> bool:
    """Find no fault."""
    return False


def find_fault_always(model, source, lengths) -> bool:
    """Find a fault in every encoder."""
    return True


def make_symbol_test(position):
    """Return a test that changes only the symbol at one position."""

    def test(model, source, lengths) -> bool:
        row, n = source[:1, : int(lengths[0])], lengths[:1]
        changed = row.clone()
        changed[0, position] = changed[0, position] % (SYMBOLS - 1) + 1
        return bool((model(changed, n) == model(row, n)).any())

    return test


def is_ignored_by_every_entry(model, source, lengths) -> bool:
    """Return whether all entries of a context vector ignore a symbol."""
    row, n = source[:1, : int(lengths[0])], lengths[:1]
    for position in range(row.shape[1]):
        changed = row.clone()
        changed[0, position] = changed[0, position] % (SYMBOLS - 1) + 1
        if torch.equal(model(changed, n), model(row, n)):
            return True
    return False


def make_diagnosis(
    padding=reads_padding, mixing=mixes_sequences, unread=ignores_symbol
):
    """Return an answer with these three tests."""
    return lambda *x: torch.tensor([padding(*x), mixing(*x), unread(*x)])


check_encoder_fault = Exercise(
    title="find the fault of an encoder",
    stars=3,
    minutes=25,
    section="Batches: padding and packing",
    solution=encoder_fault,
    helpers=(reads_padding, mixes_sequences, ignores_symbol),
    returns=("faults",),
    draw=draw,
    mistakes=(
        Mistake(
            "always-sound",
            "every encoder called sound",
            "it finds no fault in any encoder",
            make_diagnosis(find_no_fault, find_no_fault, find_no_fault),
        ),
        Mistake(
            "padding-missed",
            "padding not tested",
            "an encoder that reads padding is not found",
            make_diagnosis(padding=find_no_fault),
        ),
        Mistake(
            "padding-called-mixing",
            "padding taken for mixed sequences",
            "an encoder that reads padding is said to mix sequences as well: "
            "encoding a sequence alone removes both its padding and the other "
            "sequences; change one of them at a time",
            make_diagnosis(mixing=changes_alone),
        ),
        Mistake(
            "mixing-called-padding",
            "mixed sequences taken for padding",
            "an encoder that mixes sequences is said to read padding as well: "
            "encoding a sequence alone removes both its padding and the other "
            "sequences; change one of them at a time",
            make_diagnosis(padding=changes_alone),
        ),
        Mistake(
            "both-at-once",
            "one comparison for two faults",
            "one comparison is used for two faults: encoding a sequence alone "
            "removes both its padding and the other sequences; change "
            "one of them at a time",
            make_diagnosis(changes_alone, changes_alone),
        ),
        Mistake(
            "mixing-missed",
            "mixed sequences not tested",
            "an encoder that mixes the sequences of a batch is not found",
            make_diagnosis(mixing=find_no_fault),
        ),
        Mistake(
            "unread-missed",
            "unread symbols not found",
            "an encoder with a half that has read only one symbol is not "
            "found: the other half changes with every symbol, so compare each "
            "entry of the context",
            make_diagnosis(unread=is_ignored_by_every_entry),
        ),
        Mistake(
            "first-symbol-only",
            "only the first symbol changed",
            "only the first symbol is changed, so a half that has read nothing "
            "but the first symbol is not found",
            make_diagnosis(unread=make_symbol_test(0)),
        ),
        Mistake(
            "last-symbol-only",
            "only the last symbol changed",
            "only the last symbol is changed, so a half that has read nothing "
            "but the last symbol is not found",
            make_diagnosis(unread=make_symbol_test(-1)),
        ),
        Mistake(
            "unread-always",
            "unread symbols found everywhere",
            "every encoder is said to have unread symbols",
            make_diagnosis(unread=find_fault_always),
        ),
        Mistake(
            "faults-swapped",
            "faults in another order",
            "the first two entries are swapped",
            make_diagnosis(mixes_sequences, reads_padding),
        ),
    ),
)
