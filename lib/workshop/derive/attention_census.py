"""Derive files/attention_census: the attention of the models since 2025.

Run it in the environment of `make oracles`, which pins `transformers`:
    .venv-oracles/bin/python -m workshop.derive.attention_census

Rules, each of which looks at one thing only:
- A model is listed if `transformers` generates text with it, the first line of
  its configuration's file says 2025 or 2026, its configuration is valid
  without any argument and has one number of layers, and no model before it has
  the same attention and the same checkpoint (some have one name with and one
  without pictures).
- Sizes are those of the configuration without any argument, which is that of
  the named checkpoint or near to it. A checkpoint may say otherwise.
- The kinds of layers are those in `layer_types`, `layers_block_type` or
  `block_types`; without such a list all layers are alike: windows if there is a
  window that is not switched off, else full attention.
- Where the default is one kind, a checkpoint may mix several: `other_kinds` are
  those whose names stand, in quotes, in the files of configuration and model
  beside the kinds that the default has.
- "With a state" is a layer that has both a KV cache and the state of a
  convolution or of a state-space model ("hybrid" in `transformers`).
- A learned selection is told by `index_topk`, `index_topk_blocks` or
  `indexer_budget`.
- Learned sinks are told by an assignment to `self.sinks` or `self.sink_proj`,
  and a gate by a sigmoid of something called "gate", inside a class of
  the model's own file that is named "...Attention", but not after a linear
  attention, images or sounds.
"""

import ast
import importlib
import re
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from workshop.derive import FILES, write, write_sums

YEARS = ("2025", "2026")
KINDS = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "window",
    "local_attention": "window",
    "hybrid_sliding": "window with a state",
    "chunked_attention": "chunk",
    "indexed_attention": "selected",
    "compressed_sparse_attention": "compressed and selected",
    "heavily_compressed_attention": "compressed",
    "linear_attention": "linear",
    "mamba": "linear",
    "mamba2": "linear",
    "recurrent": "linear",
    "hybrid": "full with a state",
    "conv": "convolution",
}
NOT_ATTENTION = {"moe", "mlp", "dense", "sparse"}
LISTS = ("layer_types", "layers_block_type", "block_types")
OTHER = re.compile(
    r"Linear|Lightning|Delta|Mamba|Vision|Audio|Image|Speech|Cross|Encoder"
)
QUOTED = [x for x in KINDS if "_" in x or x == "conv"]
NAMED = re.compile(f'"({"|".join(QUOTED)})"')
SINK = re.compile(r"self\.(sinks|sink_proj)\s*=")
GATE = re.compile(r"sigmoid\([^)]*gate", re.IGNORECASE)
COLUMNS = (
    *("model", "checkpoint", "year", "layers", "kinds", "other_kinds"),
    *("window", "heads", "key_value_heads", "latent", "selection", "sinks"),
    "gate",
)


def count_kinds(config: Any) -> dict[str, int]:
    layers = config.num_hidden_layers
    kinds = next((v for x in LISTS if (v := getattr(config, x, None))), None)
    if kinds is None:
        if not describe_size(config, "num_attention_heads"):
            return {"linear": layers}
        window = describe_size(config, "sliding_window")
        used = getattr(config, "use_sliding_window", True)
        return {"window" if window and used else "full": layers}
    unknown = {*kinds} - {*KINDS} - NOT_ATTENTION
    if unknown:
        raise ValueError(
            f"{config.model_type} has layers of the kind {min(unknown)!r}; "
            f"known are {sorted({*KINDS} | NOT_ATTENTION)}"
        )
    return dict(Counter(KINDS[x] for x in kinds if x in KINDS))


def describe_size(config: Any, name: str) -> str:
    """Return a size: "8", "8/16" where layers differ, "" where it has none."""
    one_by_one = getattr(config, "is_heterogeneous", False)
    parts = [*config.per_layer_config] if one_by_one else [config]
    sizes = {size for part in parts if (size := getattr(part, name, None))}
    return "/".join(map(str, sorted(sizes)))


def describe_selection(config: Any) -> str:
    """Return how many keys a learned selection keeps: "2048 keys", or ""."""
    if count := describe_size(config, "index_topk"):
        return f"{count} keys"
    if count := describe_size(config, "index_topk_blocks"):
        return f"{count} blocks of {describe_size(config, 'index_block_size')}"
    if hasattr(config, "indexer_budget"):
        count = describe_size(config, "indexer_budget")
        return f"{count} keys" if count else "not said"
    return ""


def read_attention_classes(source: str) -> str:
    """Return the source of the classes that are softmax attention to text."""
    nodes = [x for x in ast.parse(source).body if isinstance(x, ast.ClassDef)]
    named = [x for x in nodes if x.name.endswith("Attention")]
    chosen = [x for x in named if not OTHER.search(x.name)]
    return "\n".join(ast.get_source_segment(source, x) or "" for x in chosen)


def describe_model(name: str, config: Any, header: str, modeling: str) -> dict:
    """Return the row of a model, from its configuration for text and two files."""
    kinds = count_kinds(config)
    attention = read_attention_classes(modeling)
    others = {KINDS[x] for x in NAMED.findall(header + modeling)} - set(kinds)
    heads = describe_size(config, "num_attention_heads")
    windows = any(x in kind for kind in kinds for x in ("window", "compressed"))
    limit = "sliding_window" if windows else "attention_chunk_size"
    local = windows or "chunk" in kinds
    checkpoints = re.findall(r'checkpoint="([^"]+)"', header)
    return {
        "model": name,
        "checkpoint": checkpoints[0] if checkpoints else "",
        "year": find_year(header),
        "layers": sum(kinds.values()),
        "kinds": ", ".join(f"{n} {kind}" for kind, n in kinds.items()),
        "other_kinds": ", ".join(sorted(others)),
        "window": describe_size(config, limit) if local else "",
        "heads": heads,
        "key_value_heads": describe_size(config, "num_key_value_heads") or heads,
        "latent": describe_size(config, "kv_lora_rank"),
        "selection": describe_selection(config),
        "sinks": "yes" if SINK.search(attention) else "",
        "gate": "yes" if GATE.search(attention) else "",
    }


def find_year(header: str) -> str:
    found = re.search(r"Copyright (?:\(c\) )?(\d{4})", header)
    return found[1] if found else ""


def read_models() -> Iterator[dict]:
    """Yield the rows of all models of `YEARS` that generate text."""
    auto = importlib.import_module("transformers.models.auto.configuration_auto")
    causal = importlib.import_module(
        "transformers.models.auto.modeling_auto"
    ).MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    invalid = importlib.import_module("huggingface_hub.errors").StrictDataclassError
    for name in causal:
        kind = auto.CONFIG_MAPPING[name]
        module = importlib.import_module(kind.__module__)
        path = Path(module.__file__ or "")
        header = path.read_text("utf8")
        if find_year(header) not in YEARS:
            continue
        try:
            config = kind().get_text_config()
        except invalid as error:
            print(f"{name} is left out: {str(error).splitlines()[-1].strip()}")
            continue
        if not hasattr(config, "num_hidden_layers"):
            print(f"{name} is left out: it has no number of layers")
            continue
        modeling = path.with_name(path.name.replace("configuration_", "modeling_"))
        # Some models are another one under a name of their own.
        source = modeling.read_text("utf8") if modeling.exists() else ""
        yield describe_model(name, config, header, source)


def drop_repetitions(rows: Iterator[dict]) -> list[dict]:
    """Return the rows, those that differ only in the name but once."""
    found: dict[tuple, dict] = {}
    for row in rows:
        found.setdefault(tuple(v for k, v in row.items() if k != "model"), row)
    return [*found.values()]


def main() -> None:
    rows = drop_repetitions(read_models())
    release = version("transformers")
    lines = ["\t".join(COLUMNS)]
    lines += ["\t".join(str(row[x]) for x in COLUMNS) for row in rows]
    write(f"attention_census/transformers-{release}.tsv", lines)
    write_sums()
    print(f"{len(rows)} models of transformers {release}, in {FILES}")


if __name__ == "__main__":
    main()
