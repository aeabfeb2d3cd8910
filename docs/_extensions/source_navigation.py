"""One navigation for all pages of source code that lie equally deep: to make it for each of them took most of the build."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

_PAGES = "_modules/"


def share_navigation(app: Sphinx, pagename: str, template: str, context: dict[str, Any], tree: nodes.document | None) -> None:
    """Let pages of source code take the navigation of another one: its links depend on how deep a page lies, and on no more."""
    if not pagename.startswith(_PAGES):
        return
    made, depth = context["toctree"], pagename.count("/")
    known: dict[Any, str] = app.__dict__.setdefault("_source_navigation", {})

    def navigate(**options: Any) -> str:
        key = depth, tuple(sorted(options.items()))
        if key not in known:
            known[key] = made(**options)
        return known[key]

    context["toctree"] = navigate


def setup(app: Sphinx) -> dict[str, bool]:
    """Register it before the theme, which makes the navigation."""
    app.connect("html-page-context", share_navigation, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
