"""What a compiled kernel does, read from its text: products, loops, masks.

`ttgir` is Triton's text of a kernel after its optimisations: operations on
whole tiles, each with the layout that says which thread holds which number.
PTX is the text of one thread for the assembler.
"""

import re
from dataclasses import dataclass

DOT = re.compile(
    r"(?:tt\.dot|ttng\.warp_group_dot) %\S+, %\S+,.* : "
    r"!?\S+<(\d+)x(\d+)xb?f16.* -> tensor<\d+x(\d+)xf32, #\w+>"
)
MMA = re.compile(r"(?:wgmma\.mma_async|mma\.sync)\.\S*?\.?m(\d+)n(\d+)k(\d+)\.")


@dataclass(frozen=True)
class Product:
    """A product of two tiles in the text, of (M, K) and (K, N)."""

    M: int
    N: int
    K: int

    @property
    def terms(self) -> int:
        return self.M * self.N * self.K


@dataclass(frozen=True)
class Loop:
    """A loop without a loop inside it that multiplies tiles.

    Attributes:
        lines: of its body.
        nested: for each line, whether it lies in a branch.
    """

    lines: tuple[str, ...]
    nested: tuple[bool, ...]

    @property
    def products(self) -> list[Product]:
        return list_products("\n".join(self.lines))

    def count(self, operation: str, inside: bool | None = None) -> int:
        """Count an operation on tiles of the size of the scores.

        Args:
            operation: its name, such as "arith.mulf".
            inside: in branches only, outside of them only, or in both.
        """
        scores = self.products[0]
        size = f"tensor<{scores.M}x{scores.N}x"
        return sum(
            f"= {operation} " in line and size in line
            for line, branch in zip(self.lines, self.nested, strict=True)
            if inside is None or branch == inside
        )

    @property
    def copies(self) -> int:
        """Return how many tiles are copied asynchronously in each turn."""
        return sum(
            "ttg.async_copy_global_to_local" in line
            and bool(re.search(r"\d+x\d+x!tt\.ptr", line))
            for line in self.lines
        )

    @property
    def on_their_way(self) -> int:
        """Return how many copies its first wait leaves to be finished later."""
        found = re.search(r"ttg\.async_wait .*num = (\d+)", "\n".join(self.lines))
        return int(found.group(1)) if found else 0


def list_products(ttgir: str) -> list[Product]:
    """Return the products of tiles in a text."""
    found = []
    for match in DOT.finditer(ttgir):
        M, K, N = map(int, match.groups())
        found.append(Product(M, N, K))
    return found


def list_loops(ttgir: str) -> list[Loop]:
    """Return the innermost loops that multiply tiles."""
    loops, open_loops = [], []
    for line in ttgir.splitlines():
        indent = len(line) - len(line.lstrip())
        if open_loops and indent == open_loops[-1][0] and "}" in line[: indent + 1]:
            loops.append(open_loops.pop()[1])
        for _, body in open_loops:
            body.append(line)
        if " scf.for " in line:
            open_loops.append((indent, []))
    inner = [body for body in loops if not any(" scf.for " in x for x in body)]
    return [
        Loop(tuple(body), mark_branches(body))
        for body in inner
        if list_products("\n".join(body))
    ]


def mark_branches(lines: list[str]) -> tuple[bool, ...]:
    """Return which lines of a loop lie in a branch."""
    least = min(len(x) - len(x.lstrip()) for x in lines if x.strip())
    return tuple(len(x) - len(x.lstrip()) > least for x in lines)


def count_terms(ttgir: str) -> int:
    """Return the multiplications of the products in a text, each once."""
    return sum(x.terms for x in list_products(ttgir))


def count_multiplied_terms(ptx: str, warps: int) -> int:
    """Return the multiplications that all warps together carry out.

    Four warps carry out an instruction "wgmma" together, one warp an "mma".
    """
    total = 0
    for match in MMA.finditer(ptx):
        M, N, K = map(int, match.groups())
        total += M * N * K * (warps // 4 if M == 64 else warps)
    return total
