"""Progress bars of other libraries: we show our own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm.std import tqdm


@contextmanager
def no_library_bars() -> Iterator[None]:
    """Show no bar of another library meanwhile.

    transformers, sentence-transformers, datasets, huggingface_hub, gguf and MLflow draw theirs with tqdm, in classes of
    their own. Each library has another switch, or none; so the switch of tqdm itself is set for every new bar.
    """
    before, draw = vars(tqdm)["__init__"], tqdm.__init__

    def hidden(bar: Any, *arguments: Any, **settings: Any) -> None:
        draw(bar, *arguments, **settings | {"disable": True})

    tqdm.__init__ = hidden
    try:
        yield
    finally:
        tqdm.__init__ = before
