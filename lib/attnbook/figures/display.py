"""Shows an output: all its forms in a notebook, its text elsewhere."""

from collections.abc import Mapping


def is_in_notebook() -> bool:
    """Tell whether IPython runs this code."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return get_ipython() is not None


def display_or_print(
    bundle: Mapping[str, str | bytes], metadata: Mapping | None = None
) -> None:
    """Show all forms of an output in a notebook; elsewhere, print its text.

    Args:
        bundle: the forms, by MIME type; one is "text/plain".
        metadata: about some of them, by MIME type.
    """
    if not is_in_notebook():
        print(bundle["text/plain"])
        return
    from IPython.display import display

    display(bundle, raw=True, metadata=metadata)
