"""Compiles the loops of lsm_fragment, and puts SPEC.md into it; the rest is described in pyproject.toml."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import CompileError, LinkError, PlatformError

_HOME = Path("format")
_FOLDER = _HOME / "lsm_fragment/native"


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


class BuildPackages(build_py):
    """Builds from nothing, so that no module of an earlier build gets into a wheel; adds SPEC.md, which
    stands beside the package, where package data can't reach it."""

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
            ".".join(path.relative_to(_HOME).with_suffix("").parts),
            [str(path)],
            depends=[str(header) for header in _FOLDER.rglob("*.pxd")],
            include_dirs=[pyarrow.get_include()],  # XXH3, which Arrow's headers carry
            # Doubles round alike on all machines, also where one can multiply and add in one step.
            extra_compile_args=["-O3", "-g0", "-ffp-contract=off"],
        )
        for path in sorted(_FOLDER.rglob("*.pyx"))
    ],
)
