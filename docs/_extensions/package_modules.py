"""The directive ``.. package-modules:: linalg`` documents every module of a package, so that a new one is listed at once."""

from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import steadyrnn

PACKAGE = Path(next(iter(steadyrnn.__path__)))


class PackageModules(SphinxDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        files = sorted((PACKAGE / self.arguments[0]).rglob("*.py"))
        modules = [file for file in files if file.stem != "__init__"]
        lines = [line for module in modules for line in self.document(module)]
        source, line = self.get_source_info()
        self.content = StringList(lines, source=f"{source}:{line}")
        return self.parse_content_to_nodes()

    def document(self, module: Path) -> list[str]:
        name = ".".join(module.relative_to(PACKAGE.parent).with_suffix("").parts)
        return [f".. rubric:: {name}", "", f".. automodule:: {name}", "   :members:", ""]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("package-modules", PackageModules)
    return {"parallel_read_safe": True}
