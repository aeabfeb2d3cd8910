"""HTML and SVG text that is safe by construction: what is not made here is escaped."""

from collections.abc import Iterable

from markupsafe import Markup, escape

__all__ = ["Markup", "element", "join", "place"]


def element(tag: str, *children: str, **attributes: str | float | None) -> Markup:
    """Return an element; children and attributes are escaped unless they are ``Markup``.

    An attribute's underscore stands for a hyphen, one at the end for none; numbers are written with one decimal at most;
    None leaves the attribute out.

    Example:
        >>> print(element("text", "a < b", x=1.25, class_="tick"))
        <text x="1.2" class="tick">a &lt; b</text>
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value) if isinstance(value, str) else place(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    inner = join(children)
    return Markup(f"<{tag}{written}>{inner}</{tag}>" if inner else f"<{tag}{written}/>")


def join(parts: Iterable[str]) -> Markup:
    """Return parts one after the other, each escaped unless it is markup."""
    return Markup("").join(parts)


def place(value: float) -> str:
    """Return a coordinate with one decimal at most."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text
