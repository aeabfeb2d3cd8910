"""How the documentation is built: Sphinx, the furo theme, pages in MyST Markdown."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "steadyrnn"
author = "steadyrnn contributors"
copyright = "2026, steadyrnn contributors"
release = version = installed_version("steadyrnn")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "mathml",
    "package_modules",
    "source_navigation",
]
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
not_ours = "training,set_fit_request,set_partial_fit_request,set_score_request"  # the latter are added by scikit-learn
autodoc_default_options = {"members": True, "show-inheritance": True, "exclude-members": not_ours}
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
python_use_unqualified_type_names = True

html_theme = "furo"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_title = f"steadyrnn {release}"
