"""Compiles the native modules of lsm_fragment, and adds SPEC.md; everything else is in pyproject.toml."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow
from Cython.Build import Dependencies
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import CompileError, LinkError, PlatformError

_HOME = Path("format")
_FOLDER = _HOME / "lsm_fragment/native"
_SHARED = _FOLDER / "_cython.c"
"""Cython's code for arrays. Each module would otherwise compile it again, for half of the time of a build."""


_cythonize = Dependencies.cythonize
_one_at_a_time = Lock()


def cythonize_alone(*modules: Any, **options: Any) -> Any:
    """Translates modules to C, no two of them at the same time: Cython has state that threads would mix, so
    that some builds fail. C compilers run beside it."""
    with _one_at_a_time:
        return _cythonize(*modules, **options)


Dependencies.cythonize = cythonize_alone  # which Cython's part of the command below imports


def _name(path: Path) -> str:
    return ".".join(path.relative_to(_HOME).with_suffix("").parts)


class BuildNative(build_ext):
    """Compiles the native modules, which are required; explains what is missing if one fails."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()
        self.shared_utility_qualified_name = _name(_SHARED)  # read by Cython's part of this command

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except (CompileError, LinkError, PlatformError) as error:
            raise CompileError(
                f"{ext.name} could not be compiled: {error}\n"
                "The build needs a C compiler and the headers of Python:\n"
                "  Debian, Ubuntu:  apt-get install gcc libc6-dev python3-dev\n"
                "  Fedora:          dnf install gcc python3-devel\n"
                "  macOS:           xcode-select --install\n"
                "  elsewhere:       pip install ziglang, and CC='python -m ziglang cc' in the environment"
            ) from error


class BuildPackages(build_py):
    """Builds from scratch, so that no stale module gets into a wheel; adds SPEC.md, which package data cannot
    reach beside the package."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        if not self.editable_mode:
            self.copy_file(
                str(_HOME / "SPEC.md"), str(Path(self.build_lib, "lsm_fragment/SPEC.md"))
            )


setup(
    cmdclass={"build_ext": BuildNative, "build_py": BuildPackages},
    ext_modules=[
        Extension(
            _name(path),
            [str(path)],
            depends=[str(header) for header in _FOLDER.rglob("*.pxd")],
            include_dirs=[pyarrow.get_include()],  # for the XXH3 in Arrow's headers
            # Forbid fused multiply-add, so that doubles round the same on all machines.
            extra_compile_args=["-O3", "-g0", "-ffp-contract=off"],
        )
        for path in [_SHARED, *sorted(_FOLDER.rglob("*.pyx"))]
    ],
)
