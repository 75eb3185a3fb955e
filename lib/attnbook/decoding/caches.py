"""Caches: what a decoder keeps of the symbols that it has read.

A cache has keys and values of B sequences, each of its own length. Before a pass,
`reserve` takes the rows of the new symbols; in every layer, `update` stores their keys
and values and returns all that their queries may attend to, at `key_positions`. All
caches return what was stored, except `QuantizedCache`.

Source: pages, block tables, copy on write: Kwon et al. (2023), sections 4.1 to 4.4,
    https://arxiv.org/abs/2309.06180; prefixes found again by their symbols: Zheng et
    al. (2024), section 3, https://arxiv.org/abs/2312.07104 (departure: a table of whole
    pages, not a tree); window and sinks: Xiao et al. (2024), section 3.2,
    https://arxiv.org/abs/2309.17453 (departure: positions are those in the sequence,
    not those in the cache); keys quantized a channel, values a position: Liu et al.
    (2024), KIVI, section 3, https://arxiv.org/abs/2402.02750 (departure: scales have
    the model's precision); the latent cache: DeepSeek-AI (2024), section 2.1,
    https://arxiv.org/abs/2405.04434
Axes: L layers, B sequences, G key-value heads, T new symbols, S keys, D width of a
    key, E of a value
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from attnbook.decoding.generation import find_positions
from attnbook.flash.decoding import gather_pages
from attnbook.flash.operators import clear_padding

Key = Float[Tensor, "B G T D"]
Value = Float[Tensor, "B G T E"]
Found = tuple[Float[Tensor, "B G S D"], Float[Tensor, "B G S E"]]


@dataclass(frozen=True)
class CacheSizes:
    """What one symbol leaves in a cache: a key and a value for each layer and head.

    `layers` is L, `groups` G, `key` D and `value` E.
    """

    layers: int
    groups: int
    key: int
    value: int
    dtype: torch.dtype = torch.float32
    device: torch.device | str | None = None

    @classmethod
    def of(cls, model: nn.Module) -> "CacheSizes":
        """Return the sizes for a `CachedLanguageModel`."""
        attention = model.blocks[0].attention
        # A layer that caches something else says so.
        widths = getattr(attention, "cached_widths", None)
        if widths is None:
            groups = attention.groups
            linears = attention.key, attention.value
            widths = groups, *(x.out_features // groups for x in linears)
        table = model.embed.get_parameter("table.weight")
        return cls(len(model.blocks), *widths, table.dtype, table.device)

    @property
    def bytes_per_token(self) -> int:
        """Return the bytes that one symbol of one sequence takes."""
        numbers = self.layers * self.groups * (self.key + self.value)
        return numbers * self.dtype.itemsize

    def allocate(self, rows: int, positions: int) -> list[Tensor]:
        """Return zeros (L, rows, G, positions, D) for keys, and so for values."""
        shape = self.layers, rows, self.groups, positions
        # Zeros, because 0 · NaN is NaN: a row without a key has the weight 0.
        return [
            torch.zeros(*shape, width, dtype=self.dtype, device=self.device)
            for width in (self.key, self.value)
        ]


class Cache:
    """What all caches share: how many symbols each sequence has.

    Each adds `update(layer, key, value)`, for new keys (B, G, T, D) and values.

    Attributes:
        lengths: the number of symbols of each sequence, on the CPU.
        capacity: the most that a sequence can have, or None.
        key_positions: (1, S) or (B, S) of the keys that `update` returns in the
            current pass, -1 where there is no key.
        tensors: those in which keys and values are stored.
    """

    window: int | None = None  # the newest positions that are kept, if not all
    sinks = 0  # the first positions that are kept besides
    key_positions: Int[Tensor, "_ S"]
    tensors: list[Tensor]

    def __init__(self, sizes: CacheSizes, sequences: int, capacity: int | None):
        for name, number in ("sequence", sequences), ("position", capacity):
            if number is not None and number < 1:
                raise ValueError(f"a cache needs at least 1 {name}, not {number}")
        self.sizes, self.capacity = sizes, capacity
        self.lengths = torch.zeros(sequences, dtype=torch.long, device="cpu")

    def reserve(
        self, count: int, mask: Bool[Tensor, "B T"] | None = None
    ) -> Int[Tensor, "_ T"]:
        """Return the positions of `count` columns of new symbols, -1 at padding.

        The result has one row if all sequences are equally long.

        Raises:
            ValueError: on padding between symbols, or if there is no room; the cache
                is then as before.
        """
        lengths = self.lengths
        even = mask is None or bool(mask.all())
        if even:
            positions = lengths[:, None] + torch.arange(count, device="cpu")
        else:
            positions = find_positions(mask.cpu(), lengths)
        longer = lengths + (positions >= 0).sum(1)
        self.require_room(longer)
        even = even and bool((lengths == lengths[0]).all())
        start, stop = int(lengths[0]), int(longer.max())
        # Where new symbols go: columns of all sequences, or row by row.
        self.columns = slice(start, stop) if even else None
        sequence, column = (positions >= 0).nonzero(as_tuple=True)
        self.rows = sequence, column, positions[sequence, column]
        self.stop, self.key_positions = stop, torch.arange(stop, device="cpu")[None]
        self._place(positions, longer)
        self.lengths = longer
        return positions[:1] if even else positions

    def require_room(self, lengths: Int[Tensor, " B"]) -> None:
        """Raise ValueError unless the sequences can become so long."""
        most = int(lengths.max())
        if self.capacity is not None and most > self.capacity:
            raise ValueError(
                f"sequence {int(lengths.argmax())} would have {most} symbols, but the "
                f"cache has {self.capacity} positions"
            )

    def _place(self, positions: Int[Tensor, "B T"], longer: Int[Tensor, " B"]) -> None:
        """Prepare what else `update` needs for symbols at these positions."""

    def rewind(self, lengths: Int[Tensor, " B"] | int) -> None:
        """Forget all symbols after the first `lengths` of each sequence.

        Raises:
            ValueError: if a sequence has fewer, or what it needs then is not stored any
                more; the cache is then as before.
        """
        kept = torch.as_tensor(lengths, device="cpu").expand_as(self.lengths).clone()
        for n, past in zip(kept.tolist(), self.lengths.tolist(), strict=True):
            if not 0 <= n <= past:
                raise ValueError(f"a sequence of {past} symbols cannot be cut to {n}")
        self._forget(kept)
        self.lengths = kept

    def _forget(self, kept: Int[Tensor, " B"]) -> None:
        """Give up the rows of symbols after these lengths, or raise ValueError."""

    def count_bytes(self) -> int:
        """Return the bytes of the tensors."""
        return sum(x.untyped_storage().nbytes() for x in self.tensors)


class KVCache(Cache):
    """Keys and values of all symbols, in memory that is allocated once.

    `update` writes in place and returns views: a pass copies no old key or value.
    """

    def __init__(self, sizes: CacheSizes, sequences: int, capacity: int):
        super().__init__(sizes, sequences, capacity)
        self.tensors = sizes.allocate(sequences, capacity)
        self.layers = list(zip(*self.tensors, strict=True))

    def update(self, layer: int, key: Key, value: Value) -> Found:
        """Store a layer's new keys and values; return views of all."""
        keys, values = self.layers[layer]
        if self.columns is not None:
            keys[:, :, self.columns], values[:, :, self.columns] = key, value
        else:
            sequence, column, position = self.rows
            keys[sequence, :, position] = key[sequence, :, column]
            values[sequence, :, position] = value[sequence, :, column]
        return keys[:, :, : self.stop], values[:, :, : self.stop]

    def _forget(self, kept: Int[Tensor, " B"]) -> None:
        # A pass with a longer sequence reads these rows with the weight 0.
        if len(kept) > 1:
            for b, n in enumerate(kept.tolist()):
                for x in self.tensors:
                    x[:, b, :, n : int(self.lengths[b])] = 0


class LatentCache(KVCache):
    """The cache of multi-head latent attention, whose heads share one row a symbol.

    The latent is in the place of the key, the rotary key in that of the value.
    """


class WindowCache(Cache):
    """Keys and values of the newest `window` symbols, and of the first `sinks`.

    Position p is in row p of the sinks, or else in row p mod `window` of a
    ring, in place of the symbol that left the window. Positions go on counting, since
    a key was rotated by its position in the sequence.
    """

    def __init__(self, sizes: CacheSizes, sequences: int, window: int, sinks: int = 0):
        super().__init__(sizes, sequences, None)
        if window < 1 or sinks < 0:
            raise ValueError(
                f"a window has at least 1 key and 0 sinks, not {window} and {sinks}"
            )
        self.window, self.sinks = window, sinks
        self.tensors = sizes.allocate(sequences, sinks + window)
        self.stored = torch.full((sequences, sinks + window), -1, device="cpu")

    def _place(self, positions: Int[Tensor, "B T"], longer: Int[Tensor, " B"]) -> None:
        # One query needs no key that it replaces; the first of several may.
        self.single = positions.shape[1] == 1
        before = self.stored.clone()
        newest = positions >= (longer - self.window)[:, None]
        kept = (positions >= 0) & (newest | (positions < self.sinks))
        sequence, column = kept.nonzero(as_tuple=True)
        position = positions[sequence, column]
        ring = self.sinks + position % self.window
        row = torch.where(position < self.sinks, position, ring)
        self.rows = sequence, column, row
        self.stored[sequence, row] = position
        both = torch.cat([before, positions], dim=1)
        self.key_positions = self.stored if self.single else both

    def update(self, layer: int, key: Key, value: Value) -> Found:
        """Store keys and values; return what was there, with the new ones."""
        sequence, column, row = self.rows
        found = []
        for stored, new in zip(self.tensors, (key, value), strict=True):
            rows = stored[layer]
            found.append(rows if self.single else torch.cat([rows, new], dim=2))
            rows[sequence, :, row] = new[sequence, :, column]
        return found[0], found[1]

    def _forget(self, kept: Int[Tensor, " B"]) -> None:
        for n, past in zip(kept.tolist(), self.lengths.tolist(), strict=True):
            if n < past > self.sinks + self.window:
                raise ValueError(
                    f"a sequence of {past} symbols cannot be cut to {n}: a window of "
                    f"{self.window} has replaced older keys"
                )
        self.stored[self.stored >= kept[:, None]] = -1


@dataclass(eq=False)
class PagedSequence:
    """The numbers of a sequence's pages, in order, and its number of symbols."""

    pages: list[int] = field(default_factory=list)
    length: int = 0


class PagePool:
    """Pages of keys and values for all sequences.

    Attributes:
        key: (L, pages, G, page, D); `value` is (L, pages, G, page, E).
        references: how many sequences use each page.
        free: the numbers of pages that none uses.
        published: full pages, by all symbols from the first to their end.
    """

    def __init__(self, sizes: CacheSizes, pages: int, page: int = 16):
        self.sizes, self.page = sizes, page
        self.key, self.value = sizes.allocate(pages, page)
        self.references = [0] * pages
        self.free = list(range(pages))[::-1]
        self.published: dict[tuple[int, ...], int] = {}

    def count_pages(self, length: int) -> int:
        """Return how many pages a sequence of this length has."""
        return -(-length // self.page)

    def take(self) -> int:
        """Return a free page, which now has one user."""
        number = self.free.pop()
        self.references[number] = 1
        return number

    def drop(self, number: int) -> None:
        """Take one user from a page; after the last it is free."""
        self.references[number] -= 1
        if not self.references[number]:
            self.withdraw(number)
            self.free.append(number)

    def withdraw(self, number: int) -> None:
        """Let a page no longer be found by its symbols."""
        for ids in [ids for ids, n in self.published.items() if n == number]:
            del self.published[ids]

    def prepare(self, number: int) -> int:
        """Return the page to write into instead: a copy, if others use it."""
        if self.references[number] == 1:
            self.withdraw(number)
            return number
        fresh = self.take()
        for x in (self.key, self.value):
            x[:, fresh] = x[:, number]
        self.drop(number)
        return fresh

    def share(self, sequence: PagedSequence, length: int) -> PagedSequence:
        """Return a new sequence with the first `length` symbols of another.

        Both use the same pages; whichever writes into one of them first copies it.
        """
        if not 0 <= length <= sequence.length:
            raise ValueError(
                f"a sequence of {sequence.length} symbols cannot share {length}"
            )
        pages = sequence.pages[: self.count_pages(length)]
        for number in pages:
            self.references[number] += 1
        return PagedSequence(pages, length)

    def publish(self, sequence: PagedSequence, ids: Sequence[int]) -> None:
        """Let full pages of a sequence be found by its symbols, from the first."""
        for i in range(min(len(ids), sequence.length) // self.page):
            first = tuple(ids[: (i + 1) * self.page])
            self.published.setdefault(first, sequence.pages[i])

    def find_prefix(self, ids: Sequence[int]) -> PagedSequence:
        """Return a sequence of the published pages with which these symbols begin.

        It lacks at least the last symbol, whose logits have to be computed. A page is
        found as long as a sequence uses it.
        """
        pages: list[int] = []
        for stop in range(self.page, len(ids), self.page):
            number = self.published.get(tuple(ids[:stop]))
            if number is None:
                break
            pages.append(number)
        length = len(pages) * self.page
        return self.share(PagedSequence(pages, length), length)


class PagedCache(Cache):
    """A batch of sequences whose rows are in pages of a pool.

    Position p of a sequence is in row p mod `page` of its page p // `page`. Batches can
    be put together anew for every pass.

    Args:
        sequences: those of the batch, or the number of new ones.
    """

    def __init__(self, pool: PagePool, sequences: Sequence[PagedSequence] | int):
        if isinstance(sequences, int):
            sequences = [PagedSequence() for _ in range(sequences)]
        super().__init__(pool.sizes, len(sequences), None)
        self.pool, self.sequences = pool, list(sequences)
        self.tensors = [pool.key, pool.value]
        self.lengths = torch.tensor([x.length for x in sequences], device="cpu")

    def require_room(self, lengths: Int[Tensor, " B"]) -> None:
        """Raise ValueError unless the pool has the pages, those of copies included."""
        pool, needed, unfilled = self.pool, 0, Counter()
        for x, n in zip(self.sequences, lengths.tolist(), strict=True):
            needed += max(0, pool.count_pages(n) - len(x.pages))
            if n > x.length and x.length % pool.page:
                unfilled[x.pages[-1]] += 1
        for number, writers in unfilled.items():  # the last user needs no copy
            needed += writers - (writers == pool.references[number])
        if needed > len(pool.free):
            raise ValueError(
                f"the new symbols need {needed} more pages, but the pool has "
                f"{len(pool.free)} free ones of {len(pool.references)}"
            )

    def _place(self, positions: Int[Tensor, "B T"], longer: Int[Tensor, " B"]) -> None:
        pool = self.pool
        for x, n in zip(self.sequences, longer.tolist(), strict=True):
            if n > x.length and x.length % pool.page:
                x.pages[-1] = pool.prepare(x.pages[-1])
            missing = pool.count_pages(n) - len(x.pages)
            x.pages += [pool.take() for _ in range(missing)]
            x.length = n
        sequence, column, position = self.rows
        self.table = self.block_table()
        page = self.table[sequence, position // pool.page]
        self.rows = sequence, column, page, position % pool.page
        self.ends = longer.to(pool.key.device)

    def block_table(self) -> Int[Tensor, "B _"]:
        """Return the page numbers of all sequences, 0 after a sequence's last."""
        most = max(1, *(len(x.pages) for x in self.sequences))
        rows = [x.pages + [0] * (most - len(x.pages)) for x in self.sequences]
        return torch.tensor(rows, device=self.pool.key.device)

    def update(self, layer: int, key: Key, value: Value) -> Found:
        """Store keys and values in their pages; return copies of all, in order."""
        sequence, column, page, row = self.rows
        found = []
        for pool, new in zip(self.tensors, (key, value), strict=True):
            pool[layer][page, :, row] = new[sequence, :, column]
            rows = gather_pages(pool[layer], self.table)[:, :, : self.stop]
            # The rest of a last page is another sequence's, and may be NaN.
            found.append(clear_padding(rows, self.ends))
        return found[0], found[1]

    def _forget(self, kept: Int[Tensor, " B"]) -> None:
        for x, n in zip(self.sequences, kept.tolist(), strict=True):
            while len(x.pages) > self.pool.count_pages(n):
                self.pool.drop(x.pages.pop())
            x.length = n

    def count_bytes(self) -> int:
        """Return the bytes of the pages that these sequences use, each once."""
        pages = {number for x in self.sequences for number in x.pages}
        return len(pages) * self.pool.page * self.sizes.bytes_per_token


def quantize(
    x: Float[Tensor, "*B N"], bits: int
) -> tuple[UInt8[Tensor, "*B N"], Float[Tensor, "*B 2"]]:
    """Return codes from 0 to 2^bits - 1, and scale and lowest number of each row.

    The scale is (highest - lowest) / (2^bits - 1); what `dequantize` returns differs
    from x by at most half of it, apart from rounding.
    """
    low, high = x.aminmax(dim=-1, keepdim=True)
    scale = (high - low) / (2**bits - 1)
    steps = (x - low) / scale.masked_fill(scale == 0, 1)
    return steps.round().to(torch.uint8), torch.cat([scale, low], dim=-1)


def dequantize(
    codes: UInt8[Tensor, "*B N"], scales: Float[Tensor, "*B 2"]
) -> Float[Tensor, "*B N"]:
    """Return lowest number + codes · scale."""
    return scales[..., 1:] + codes * scales[..., :1]


def pack(codes: UInt8[Tensor, "*B N"], bits: int) -> UInt8[Tensor, "*B _"]:
    """Return codes with 8 / bits of them in a byte."""
    shifts = torch.arange(0, 8, bits, device=codes.device, dtype=torch.uint8)
    parts = codes.unflatten(-1, (-1, 8 // bits)) << shifts
    return parts.sum(-1, dtype=torch.uint8)


def unpack(packed: UInt8[Tensor, "*B P"], bits: int) -> UInt8[Tensor, "*B _"]:
    """Return the codes that `pack` got."""
    shifts = torch.arange(0, 8, bits, device=packed.device, dtype=torch.uint8)
    return ((packed[..., None] >> shifts) & (2**bits - 1)).flatten(-2)


class QuantizedCache(Cache):
    """Keys and values in 8, 4 or 2 bits, except those of the newest symbols.

    Some channels of keys are far larger than others: `group` positions of one channel
    share a scale. Of values, `group` columns of one position do. Whenever `group`
    positions are older than the newest `residual`, they are quantized. The attention of
    a pass sees the keys and values of that pass exactly. All sequences are equally
    long, without padding.
    """

    def __init__(
        self,
        sizes: CacheSizes,
        sequences: int,
        capacity: int,
        bits: int = 4,
        group: int = 32,
        residual: int = 32,
    ):
        super().__init__(sizes, sequences, capacity)
        if bits not in (8, 4, 2) or group * bits % 8 or sizes.value % group:
            raise ValueError(
                f"codes have 8, 4 or 2 bits, and a group fills bytes and divides the "
                f"width of values: not {bits} bits and {group} of {sizes.value} columns"
            )
        self.bits, self.group, self.residual = bits, group, residual
        shape = sizes.layers, sequences, sizes.groups
        kinds = (group * bits // 8, torch.uint8), (2, sizes.dtype)
        # Keys are (group, channel, position), values (position, group, column).
        parts = (capacity // group, sizes.key), (capacity, sizes.value // group)
        self.tensors = [
            torch.zeros(*shape, *part, last, dtype=dtype, device=sizes.device)
            for part in parts
            for last, dtype in kinds
        ] + sizes.allocate(sequences, residual + group)
        self.recent = self.tensors[4:]
        self.coded = 0  # positions, the oldest

    def _place(self, positions: Int[Tensor, "B T"], longer: Int[Tensor, " B"]) -> None:
        if self.columns is None:
            raise ValueError(
                f"the sequences of a quantized cache are equally long, but these would "
                f"have {longer.tolist()} symbols after {self.lengths.tolist()}"
            )
        self.past = self.coded
        complete = max(0, self.stop - self.residual) // self.group * self.group
        self.coded = max(self.past, complete)

    def update(self, layer: int, key: Key, value: Value) -> Found:
        """Store keys and values; return the older ones as they are stored."""
        start, room = self.columns.start, self.residual + self.group
        exact = torch.arange(self.past, start, device=key.device) % room
        stored, found = self.read(layer, self.past), []
        for old, recent, new in zip(stored, self.recent, (key, value), strict=True):
            found.append(torch.cat([old, recent[layer][:, :, exact], new], dim=2))
        if self.coded > self.past:
            self.write(layer, *(x[:, :, self.past : self.coded] for x in found))
        kept = torch.arange(max(self.coded, start), self.stop, device=key.device)
        for recent, rows in zip(self.recent, found, strict=True):
            recent[layer][:, :, kept % room] = rows[:, :, kept]
        return found[0], found[1]

    def read(self, layer: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return the first keys and values, (B, G, stop, _), from their codes."""
        key_codes, key_scales, codes, scales = (x[layer] for x in self.tensors[:4])
        first = slice(None), slice(None), slice(stop // self.group)
        keys = dequantize(unpack(key_codes[first], self.bits), key_scales[first])
        first = slice(None), slice(None), slice(stop)
        values = dequantize(unpack(codes[first], self.bits), scales[first])
        return keys.transpose(-1, -2).flatten(2, 3), values.flatten(3)

    def write(self, layer: int, key: Key, value: Value) -> None:
        """Quantize whole groups of positions."""
        channels = key.unflatten(2, (-1, self.group)).transpose(-1, -2)
        columns = value.unflatten(-1, (-1, self.group))
        for i, (rows, unit) in enumerate(((channels, self.group), (columns, 1))):
            place = slice(self.past // unit, self.coded // unit)
            codes, scales = quantize(rows, self.bits)
            self.tensors[2 * i][layer, :, :, place] = pack(codes, self.bits)
            self.tensors[2 * i + 1][layer, :, :, place] = scales

    def _forget(self, kept: Int[Tensor, " B"]) -> None:
        least, most = int(kept.min()), int(kept.max())
        if least < min(self.coded, int(self.lengths[0])) or least < most:
            raise ValueError(
                f"sequences of which {self.coded} positions are quantized cannot be "
                f"cut to {kept.tolist()}"
            )
