"""Formulas become MathML when the pages are built; their font travels within a style sheet: no script, no network."""

import html
import io
import logging
import re
import unicodedata
from base64 import b64encode
from collections.abc import Set
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from docutils import nodes
from fontTools.subset import Options, Subsetter, load_font
from math_core import LatexError, LatexToMathML
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.logging import getLogger
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

CONVERTER = LatexToMathML(fancy_error=False)
ENVIRONMENT = re.compile(r"\\begin\{(\w+\*?)\}.*?\\end\{\1\}", re.DOTALL)
ENTITY = re.compile(r"&(?!lt;|gt;|amp;|quot;)\w+;")
PUNCTUATION = re.compile(r"[,.;:!?)\]’”]+")
RELATIONS, SUMS, CLOSING = (frozenset(signs) for signs in ("=<>≤≥≠≈≺⪰∈∝∼←→↦", "+−", ")]}⌉⌋⟩"))
LONG = 16  # characters from which on a formula may be broken
FORMULA = re.compile(r"<math\b.*?</math>", re.DOTALL)
ITALIC = (0x210E, *range(0x1D434, 0x1D455), *range(0x1D456, 0x1D468), 0x1D6A4, 0x1D6A5, *range(0x1D6E2, 0x1D71C))
ROOT_SIGN = 0x221A  # drawn for <msqrt>, in no text
SHEET = "math.css"
RULES = """math { font-family: "Page Math", math }
:is(msub, msup, msubsup) > :not(:first-child) { font-feature-settings: "ssty" }  /* the forms of a font for indices: primes */
"""
logger = getLogger(__name__)
logging.getLogger("fontTools").setLevel(logging.WARNING)


def to_mathml(node: nodes.Element, latex: str, display: bool) -> str:
    """Return the MathML of a formula; one that cannot be read is a warning, and is shown as an error."""
    try:
        return CONVERTER.convert_with_local_state(latex, displaystyle=display)
    except LatexError as error:
        logger.warning("this formula cannot be converted (%s): %s", error, latex.strip(), location=node)
        return f"<math><merror><mtext>{html.escape(latex)}</mtext></merror></math>"


def aligned(latex: str) -> str:
    r"""Return a formula with its lines aligned, where it has more than one: ``\\`` and ``&`` outside of an environment."""
    rest = ENVIRONMENT.sub("", latex)
    return rf"\begin{{aligned}}{latex}\end{{aligned}}" if r"\\" in rest or "&" in rest else latex


def is_operand(part: ElementTree.Element) -> bool:
    """Return whether a sign after this part joins two operands, and is not the sign of a number."""
    return part.tag != "mo" or part.text in CLOSING


def pieces(mathml: str) -> list[str]:
    """Return a long formula in pieces between which a line may end: after a relation, plus or minus of its outermost row."""
    root = ElementTree.fromstring(ENTITY.sub(lambda match: html.unescape(match[0]), mathml))
    if len("".join(root.itertext())) < LONG:
        return [mathml]
    rows = [ElementTree.Element("math")]
    for before, part in zip([None, *root], root, strict=False):
        rows[-1].append(part)
        if before is not None and part.tag == "mo" and (part.text in RELATIONS or (part.text in SUMS and is_operand(before))):
            part.set("form", "infix")  # it has the spaces of an operator between two operands, though it ends its row
            rows.append(ElementTree.Element("math"))
    return [ElementTree.tostring(row, encoding="unicode") for row in rows if len(row)]


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    *first, last = pieces(to_mathml(node, node.astext(), display=False))
    self.body.append(self.starttag(node, "span", "", CLASS="math notranslate nohighlight"))
    self.body.append("<wbr>".join([*first, f"<span>{last}{node.get('punctuation', '')}</span>"]) + "</span>")
    raise nodes.SkipNode


class KeepPunctuation(SphinxPostTransform):
    """Moves a comma or stop after a formula into its element, so that no line begins with it."""

    default_priority = 900
    formats = ("html",)

    def run(self) -> None:
        for node in list(self.document.findall(nodes.math)):
            after = node.next_node(descend=False, siblings=True)
            if isinstance(after, nodes.Text) and (found := PUNCTUATION.match(after)):
                node["punctuation"] = found[0]
                after.parent.replace(after, nodes.Text(after[found.end() :]))


def visit_display(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="math notranslate nohighlight"))
    if node.get("number"):
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append(to_mathml(node, aligned(node.astext()), display=True) + "</div>\n")
    raise nodes.SkipNode


def characters(folder: Path) -> set[int]:
    """Return the characters in the formulas of all pages, and those that a browser draws for single letters and roots."""
    pages = (page.read_text(encoding="utf-8") for page in folder.rglob("*.html"))
    formulas = (formula for page in pages for formula in FORMULA.findall(page))
    used = {ord(letter) for formula in formulas for letter in html.unescape(re.sub(r"<[^>]*>", "", formula))}
    return {ROOT_SIGN} | used | {code for code in ITALIC if int(unicodedata.decomposition(chr(code)).split()[-1], 16) in used}


def math_font(codes: Set[int]) -> bytes:
    """Return STIX Two Math (SIL Open Font License) with these characters and the larger forms of its brackets, as WOFF.

    Without a font that has a table of mathematical constants a browser sets indices on the line and exponents far above it.
    """
    package = find_spec("ziamath")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("the font of the formulas comes with the package ziamath: install steadyrnn[docs]")
    options = Options(flavor="woff", hinting=False, layout_features=["ssty"])
    font = load_font(Path(package.origin).parent / "fonts" / "STIXTwoMath-Regular.ttf", options)
    subsetter = Subsetter(options)
    subsetter.populate(unicodes=codes)
    subsetter.subset(font)
    scripts = font["GSUB"].table.ScriptList.ScriptRecord if "GSUB" in font else []
    for record in scripts:  # the forms for indices are listed for the script `math`, which not every browser asks for
        record.Script = next(script.Script for script in scripts if script.ScriptTag == "math")
    file = io.BytesIO()
    font.flavor = options.flavor
    font.save(file)
    return file.getvalue()


def write_sheet(app: Sphinx, error: Exception | None) -> None:
    """Write the style sheet with the font in it: browsers do not load a font file for a page opened from a folder."""
    if error is None and app.builder.format == "html":
        font = b64encode(math_font(characters(app.outdir))).decode()
        face = f'@font-face {{ font-family: "Page Math"; src: url("data:font/woff;base64,{font}") format("woff") }}\n'
        (app.outdir / "_static" / SHEET).write_text(face + RULES, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_display, None))
    app.add_post_transform(KeepPunctuation)
    app.add_css_file(SHEET)
    app.connect("build-finished", write_sheet)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
