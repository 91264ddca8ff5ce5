"""Self-contained pages: templates beside this file, pictures inside."""

from __future__ import annotations

import base64
from typing import Any

from seqlab.core.settings.fields import flags_of, to_table


def render(template: str, **values: Any) -> str:
    """The page; everything but `Markup` is escaped, and a missing value is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("seqlab.pages", "templates"), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template(template).render(**values)


def embedded(png: bytes) -> str:
    """A picture as the address of an image."""
    return "data:image/png;base64," + base64.b64encode(png).decode()


def flat(record: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """A table of tables as rows: (dotted name, value)."""
    rows: list[tuple[str, str]] = []
    for name, value in record.items():
        rows += flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, str(value))]
    return rows


def settings_rows(settings: Any) -> dict[str, list[tuple[str, Any, str]]]:
    """Group -> (name, value, what it means), each explained by its own field."""
    explained = {(group, f.name): f.metadata["help"] for group, f in flags_of(type(settings)).values()}
    return {
        group: [(name, value, explained[group, name]) for name, value in values.items()]
        for group, values in to_table(settings).items()
    }
