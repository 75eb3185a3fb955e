"""The models of recorded runs, with the weights that are shipped."""

from safetensors.torch import load_file

from attnbook.models.recurrent import EncoderDecoder
from attnbook.records import WEIGHTS
from attnbook.training.run import Run, read_run
from attnbook.training.tasks import Task


def load_trained(name: str) -> tuple[EncoderDecoder, Task, Run]:
    """Return a run's model with the weights shipped, its data and settings.

    Raises:
        ValueError: if the run is unknown or its weights are not shipped.
    """
    path = WEIGHTS / f"{name}.safetensors"
    if not path.exists():
        shipped = sorted(p.stem for p in WEIGHTS.glob("*.safetensors"))
        raise ValueError(
            f"the weights of {name!r} are not shipped; those of {shipped} are"
        )
    run = read_run(name)
    model = run.model()
    model.load_state_dict({k: v.float() for k, v in load_file(path).items()})
    return model.eval(), run.data(), run
