"""Options that Hydra puts together once for all runs of a process, which takes most of the time of a small run."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

from robust_eval.config.groups import CONF


@contextmanager
def kept_options() -> Iterator[None]:
    """Whoever composes options of this package again meanwhile has a copy of them, and sets the other overrides."""
    defaults_list, compose = (
        config_loader_impl.create_defaults_list,
        ConfigLoaderImpl._compose_config_from_defaults_list,
    )
    lists: dict[tuple[str, ...], Any] = {}
    composed: dict[int, DictConfig] = {}

    def chosen(repo: Any, config_name: str, overrides_list: list[Override], **settings: Any) -> Any:
        places = {source.path for source in repo.get_sources() if source.scheme() == "file"}
        choices = [each for each in overrides_list if repo.group_exists(str(each.key_or_group))]
        if places != {str(CONF)} or not all(map(_is_file, choices)):
            return defaults_list(repo, config_name, overrides_list, **settings)
        key = (str(settings), *(str(each.input_line) for each in choices))
        if key not in lists:
            lists[key] = defaults_list(repo, config_name, choices, **settings)
        set_values = [each for each in overrides_list if each not in choices and not each.is_sweep_override()]
        return replace(lists[key], config_overrides=set_values)

    def once(self: ConfigLoaderImpl, defaults: list[Any], repo: Any) -> DictConfig:
        if not any(defaults is each.defaults for each in lists.values()):
            return compose(self, defaults, repo)
        if id(defaults) not in composed:
            composed[id(defaults)] = compose(self, defaults, repo)
        return copy.deepcopy(composed[id(defaults)])

    config_loader_impl.create_defaults_list = chosen
    ConfigLoaderImpl._compose_config_from_defaults_list = once  # type: ignore[method-assign]
    try:
        yield
    finally:
        config_loader_impl.create_defaults_list = defaults_list
        ConfigLoaderImpl._compose_config_from_defaults_list = compose  # type: ignore[method-assign]


def _is_file(choice: Override) -> bool:
    """Whether a choice names options of this package, whose files do not change."""
    value = choice.value()
    names: Sequence[Any] = value if isinstance(value, list) else [value]
    return all((CONF / str(choice.key_or_group) / f"{name}.yaml").is_file() for name in names)
