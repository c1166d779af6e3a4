import io

import pytest
from datasets.utils import tqdm as of_datasets
from huggingface_hub.utils import tqdm as of_hub
from tqdm.auto import tqdm as automatic
from tqdm.std import tqdm

from robust_eval.runtime.library_bars import no_library_bars

BARS = {"tqdm": tqdm, "auto": automatic, "hub": of_hub, "datasets": of_datasets}


def drawn(kind: type) -> bool:
    written = io.StringIO()
    assert list(kind(range(3), file=written, disable=False)) == [0, 1, 2]
    return bool(written.getvalue())


@pytest.mark.parametrize("kind", BARS.values(), ids=BARS)
def test_a_bar_of_a_library_is_hidden_meanwhile_and_drawn_afterwards(kind: type):
    with no_library_bars():
        with no_library_bars():
            assert not drawn(kind)
        assert not drawn(kind)
    assert drawn(kind)


def test_nothing_is_left_behind_even_where_it_fails():
    before = vars(tqdm)["__init__"]
    with pytest.raises(KeyError), no_library_bars():
        raise KeyError
    assert vars(tqdm)["__init__"] is before
