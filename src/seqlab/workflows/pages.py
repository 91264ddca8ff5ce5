"""Self-contained pages: a template beside this file, pictures inside."""

from __future__ import annotations

import base64
from typing import Any


def render(template: str, **values: Any) -> str:
    """The page; everything but `Markup` is escaped, and a missing value is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(loader=PackageLoader("seqlab.workflows", "."), autoescape=True, undefined=StrictUndefined)
    return environment.get_template(template).render(**values)


def embedded(png: bytes) -> str:
    """A picture as the address of an image."""
    return "data:image/png;base64," + base64.b64encode(png).decode()
