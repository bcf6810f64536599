"""The reference of the public interface as HTML, by pdoc: `python -m docs.tools.python_reference FOLDER`."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Final

import pdoc

import compactor
import lsm_fragment

# Only what is public: other modules may change in any version.
_MODULES: Final = (
    "compactor",
    r"!compactor\.(?!errors)",
    "lsm_fragment",
    r"!lsm_fragment\.(?!errors)",
)


def write_reference(folder: Path) -> None:
    """Raises the first warning."""
    for module in (compactor, lsm_fragment):
        for name in module.__all__:
            getattr(module, name)  # pdoc sees what has been imported
    pdoc.render.configure(
        docformat="markdown", show_source=False, footer_text=lsm_fragment.__version__
    )
    with warnings.catch_warnings(action="error"):
        pdoc.pdoc(*_MODULES, output_directory=folder)


if __name__ == "__main__":
    write_reference(Path(sys.argv[1]))
    print(f"{sys.argv[1]}/index.html")
