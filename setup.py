"""Compiles the modules of format/native; the rest of the package is described in pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pyarrow
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError, PlatformError

_FOLDER = Path("format/native")


class BuildNative(build_ext):
    """Says what is missing where a module cannot be compiled: without them nothing works."""

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


setup(
    cmdclass={"build_ext": BuildNative},
    ext_modules=[
        Extension(
            f"format.native.{path.stem}",
            [str(path)],
            depends=[str(header) for header in _FOLDER.glob("*.pxd")],
            include_dirs=[pyarrow.get_include()],  # XXH3, which Arrow's headers carry
            # Doubles round alike on all machines, also where one can multiply and add in one step.
            extra_compile_args=["-O3", "-g0", "-ffp-contract=off"],
        )
        for path in sorted(_FOLDER.glob("*.pyx"))
    ],
)
