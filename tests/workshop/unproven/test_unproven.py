"""What a CPU can check of the experiments that no GPU has run."""

import re
import sys
from pathlib import Path

import pytest
import torch
from numeric import read_imports

import workshop
from attnbook.flash.sizes import SHARED, TABLE
from workshop.unproven import tile_sweep

LIB = Path(workshop.__file__).parents[1]

kernel = pytest.mark.skipif(
    sys.platform != "linux",
    reason="Triton is only made for Linux: its kernels were not compiled",
)


def imports_unproven(path: Path) -> bool:
    return any("unproven" in name.split(".") for name in read_imports(path))


def test_nothing_imports_them():
    for path in LIB.rglob("*.py"):
        if path.parent.name != "unproven":
            assert not imports_unproven(path), path


@pytest.mark.parametrize(
    "line",
    [
        "import workshop.unproven.tile_sweep",
        "import workshop.unproven as kernels",
        "from workshop import unproven",
        "from workshop.unproven import tile_sweep",
        "from workshop.unproven.tile_sweep import main",
        "from . import unproven",
        "from .unproven import tile_sweep",
        "def load():\n    from workshop import unproven",
    ],
)
def test_an_import_of_them_is_found(line, tmp_path):
    path = tmp_path / "module.py"
    path.write_text(f"{line}\n", "utf8")
    assert imports_unproven(path)


@kernel
@pytest.mark.kernel
@pytest.mark.exact("compiles kernels and runs none of them")
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("D", [64, 128])
def test_the_gluon_kernel_compiles_for_a_hopper_gpu(D, kind):
    import compiling
    from workshop.unproven import gluon_forward

    given = compiling.make_inputs(D, dtype=getattr(torch, kind), G=4)
    with compiling.compile_for((9, 0)) as made:
        gluon_forward.attend(*given)
    (code,) = [compiling.describe_kernel(*x) for x in made]
    assert code.spilled == 0
    assert code.shared <= SHARED[9, 0]
    # Two groups of four warps compute, and four more are reserved for loading.
    assert ".reqntid 384" in code.ptx
    # A tile of queries for each group, and tiles of keys and values.
    copies = code.ptx.count("cp.async.bulk.tensor.2d.shared")
    assert copies == (2 + 2) * (D // 64)
    # In each group two products begin in a turn, and the first is waited for.
    assert len(re.findall(r"wgmma\.wait_group\S*\s+1;", code.ptx)) == 2
    short = "f16" if kind == "float16" else "bf16"
    used = set(re.findall(r"wgmma\.mma_async\S*?m64n\d+k16\S*", code.ptx))
    assert {int(re.search(r"n(\d+)k", x)[1]) for x in used} == {128, D}
    assert all(x.endswith(f"f32.{short}.{short}") for x in used)
    # The loading warp gives up registers that the others receive.
    taken = re.findall(r"setmaxnreg\.(inc|dec)\S*\s+(\d+)", code.ptx)
    assert {("inc", "240"), ("dec", "24")} <= set(taken)


@kernel
@pytest.mark.refusal
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"D": 80}, "width 64 or 128 and as many heads of keys"),
        ({"G": 2}, "width 64 or 128 and as many heads of keys"),
        ({"T": 200}, "not T = 200 and S = 256"),
        ({"S": 130}, "not T = 256 and S = 130"),
    ],
)
def test_the_gluon_kernel_refuses_what_it_does_not_compute(change, message):
    import compiling
    from workshop.unproven import gluon_forward

    given = compiling.make_inputs(**{"D": 64, "G": 4} | change)
    with pytest.raises(ValueError, match=message):
        gluon_forward.attend(*given)


@pytest.mark.parametrize("name", tile_sweep.KERNELS)
@pytest.mark.parametrize(
    ("family", "capability"),
    [("hopper", (9, 0)), ("roomy", (8, 0)), ("small", (8, 9))],
)
@pytest.mark.parametrize("D", [64, 128])
def test_the_sweep_tries_the_sizes_of_today(name, family, capability, D):
    tiles = list(tile_sweep.list_tiles(name, capability, D))
    assert len(tiles) == len(set(tiles)) > 20
    today = TABLE[name, family][D]
    rows = today.keys if name == "key_value_gradient" else today.queries
    # Some of today's let warps share rows, where a test reads that they divide
    # the columns instead.
    assert today in tiles or rows < 16 * today.warps
    for tile in tiles:
        rows = tile.keys if name == "key_value_gradient" else tile.queries
        assert rows >= 16 * tile.warps


def test_the_fastest_right_size_is_chosen():
    usual = {"kernel": "forward", "dtype": "float16", "D": 64, "case": "full"}
    rows = [
        usual | {"ms": 3.0, "queries": 64},
        usual | {"ms": None, "queries": 256},
        usual | {"ms": 2.0, "queries": 128},
        usual | {"ms": 1.0, "queries": 16, "case": "causal"},
    ]
    fastest = tile_sweep.choose_fastest(rows)
    assert {k: x["queries"] for k, x in fastest.items()} == {
        "forward/float16/64/full": 128,
        "forward/float16/64/causal": 16,
    }


def test_gradients_that_are_far_apart_are_wrong():
    usual = (torch.tensor([1.0, -2.0]),)
    near, far = (usual[0] + 0.01,), (usual[0] + 0.1,)
    assert tile_sweep.compare_gradients(near, usual) < 1
    assert tile_sweep.compare_gradients(far, usual) > 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU would be used")
def test_without_a_gpu_the_sweep_says_what_it_needs(capsys, tmp_path):
    out = tmp_path / "out.json"
    assert tile_sweep.main([str(out)]) == 1
    assert "an NVIDIA GPU" in capsys.readouterr().out
    assert not out.exists()
