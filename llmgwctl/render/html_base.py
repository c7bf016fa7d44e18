"""How a page is put together: autoescaped templates, one style, one small script, and a policy that allows no more."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from llmgwctl import __version__
from llmgwctl.render.text import clean


def page(template: str, **data: Any) -> str:
    """A whole page. `refresh_s` > 0 reloads it; everything it needs is inside."""
    style, script = asset("page.css"), asset("page.js")
    made = environment().get_template(template)
    return made.render(
        style=Markup(style),  # noqa: S704 - our own files, not a host's text
        script=Markup(script),  # noqa: S704
        policy=policy(style, script),
        version=__version__,
        **data,
    )


def policy(style: str, script: str) -> str:
    """Nothing from anywhere, but this very style and this very script."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def asset(name: str) -> str:
    """A file beside the templates. A closing tag inside it would end the element that it stands in."""
    text = (files("llmgwctl.render") / "templates" / name).read_text(encoding="utf-8").strip()
    if "</" in text:
        raise ValueError(f"{name} holds '</'")
    return text


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("llmgwctl.render", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=shown,
    )
    made.filters["plural"] = plural
    return made


def shown(value: Any) -> Any:
    """Text of hosts on one line, without control or direction signs; what is no text stays as it is."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def plural(count: int, one: str, many: str = "") -> str:
    """1 tray, 2 trays."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
