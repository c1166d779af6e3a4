"""A composed configuration as a file that Hydra composes to the same."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from robust_eval.config.schema import CONF, SCHEMAS


def repeatable(composed: DictConfig) -> str:
    """Return the text of a file that Hydra composes to the same configuration (``repeat=FOLDER``)."""
    settings = OmegaConf.to_container(composed, resolve=True)
    assert isinstance(settings, dict)
    return configuration_file(schemas_of(composed), {str(name): value for name, value in settings.items()})


def configuration_file(schemas: Iterable[tuple[str, str]], settings: Mapping[str, Any]) -> str:
    """Return the text of a file that Hydra composes to these settings.

    The file names the ``schemas`` of its parts (path and name of each, outer ones first) and where Hydra puts runs. It
    takes nothing else from other files.
    """
    named = [f"/schema/{name}@{path}" for path, name in schemas]
    main = yaml.safe_load((CONF / "config.yaml").read_text(encoding="utf-8"))
    logging = [entry for entry in main["defaults"] if isinstance(entry, dict) and "override" in next(iter(entry))]
    head = {"defaults": ["schema", *named, "_self_", *logging]}
    return str(yaml.safe_dump({**head, **settings, "hydra": main["hydra"]}, sort_keys=False, allow_unicode=True))


def schemas_of(node: DictConfig, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of each node that has the schema of a group, with the name of the schema; outer nodes first."""
    names = {schema: f"{group}/{name}" for group, schemas in SCHEMAS.items() for name, schema in schemas.items()}
    for key, child in node.items_ex(resolve=False):
        if isinstance(child, DictConfig):
            schema = OmegaConf.get_type(child)
            if schema in names:
                yield f"{path}{key!s}", names[schema]
            yield from schemas_of(child, f"{path}{key!s}.")
