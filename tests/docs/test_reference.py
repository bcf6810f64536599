"""`make docs` has every public name, and no warning."""

from __future__ import annotations

from pathlib import Path

import compactor
import lsm_fragment
from docs.tools.python_reference import write_reference


def test_the_reference_has_every_public_name(tmp_path: Path) -> None:
    write_reference(tmp_path)
    pages = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.html")}
    assert pages == {
        "index.html", "compactor.html", "compactor/errors.html", "lsm_fragment.html",
        "lsm_fragment/errors.html",
    }  # fmt: skip
    for module in (compactor, lsm_fragment):
        page = (tmp_path / f"{module.__name__}.html").read_text()
        for name in module.__all__:
            assert name in ("__version__", "errors") or f'id="{name}"' in page, name
    scan = (tmp_path / "compactor.html").read_text()
    assert 'id="Table.append"' in scan and 'id="TableView.scan"' in scan
    assert "Reads nothing yet" in scan
