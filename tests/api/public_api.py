"""The public interface as text: names, signatures, fields and members, as people see them."""

from __future__ import annotations

import dataclasses
import enum
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import msgspec
from msgspec import NODEFAULT, Struct
from pydantic import BaseModel

import compactor
import compactor.spark
import lsm_fragment


def public_api() -> str:
    """One line a name; members indented."""
    modules = (compactor, compactor.spark, lsm_fragment)
    lines = [*(line for module in modules for line in _module(module)), *_errors()]
    return "\n".join(lines) + "\n"


def _module(module: ModuleType) -> Iterator[str]:
    for name in sorted(module.__all__):
        thing = getattr(module, name)
        path = f"{module.__name__}.{name}"
        if inspect.isclass(thing):
            yield from _class(path, thing)
        elif callable(thing):
            yield f"{path}{_signature(thing)}"
        elif inspect.ismodule(thing):
            yield f"{path}: module"
        else:
            yield f"{path}: {type(thing).__name__}"


def _class(path: str, kind: type) -> Iterator[str]:
    if issubclass(kind, BaseException):
        yield f"{path}: exception, see compactor.errors"
        return
    yield f"{path}{_constructor(kind)}"
    if issubclass(kind, enum.Enum):
        yield from (f"    {member.name} = {member.value!r}" for member in kind)
        return
    yield from (f"    {line}" for line in _fields(kind))
    for name, member in sorted(_members(kind).items()):
        if isinstance(member, property):
            yield f"    {name}: {inspect.signature(member.fget).return_annotation}"  # type: ignore[arg-type]
        elif isinstance(member, classmethod):
            yield f"    classmethod {name}{_signature(member.__func__)}"
        elif inspect.isfunction(member):
            yield f"    {name}{_signature(member)}"


def _constructor(kind: type) -> str:
    """Nothing where fields say it, and where it is not for people: it says so."""
    is_listed = dataclasses.is_dataclass(kind) or issubclass(kind, (enum.Enum, BaseModel, Struct))
    is_ours = (inspect.getdoc(getattr(kind, "__init__", None)) or "").startswith(
        ("Is called by ", "Use ")
    )
    return "" if is_listed or is_ours else _signature(kind)


def _signature(thing: Any) -> str:
    return str(inspect.signature(thing)).replace("'", "")


def _fields(kind: type) -> Iterator[str]:
    if dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            has_default = field.default is not dataclasses.MISSING
            default: Any = field.default if has_default else field.default_factory
            shown = "" if default is dataclasses.MISSING else f" = {_default(default)}"
            yield f"{field.name}: {field.type}{shown}"
    elif issubclass(kind, Struct):
        for member in msgspec.structs.fields(kind):
            default = member.default if member.default is not NODEFAULT else member.default_factory
            shown = "" if default is NODEFAULT else f" = {_default(default)}"
            yield f"{member.name}: {kind.__annotations__[member.name]}{shown}"
    elif issubclass(kind, BaseModel):
        for name, info in kind.model_fields.items():
            is_derived = info.default_factory is not None  # from the other fields
            shown = "..." if is_derived else _default(info.default)
            yield f"{name}: {kind.__annotations__[name]} = {shown}"


def _default(value: Any) -> str:
    if callable(value):
        return f"{value.__name__}()"
    return repr(str(value)) if isinstance(value, enum.Enum) else repr(value)


def _members(kind: type) -> dict[str, Any]:
    special = ("__arrow_c_stream__", "__arrow_c_schema__", "__iter__", "__len__", "__enter__")
    ours = [
        base
        for base in kind.__mro__
        if base.__module__.split(".")[0] in ("compactor", "lsm_fragment")
    ]
    found: dict[str, Any] = {}
    for base in reversed(ours):
        found.update({n: m for n, m in vars(base).items() if n in special or not n.startswith("_")})
    return found


def _errors() -> Iterator[str]:
    for module in (compactor.errors, lsm_fragment.errors):
        for name, kind in sorted(vars(module).items()):
            if inspect.isclass(kind) and kind.__module__ == module.__name__:
                (base,) = kind.__bases__
                code = getattr(kind, "exit_code", None)
                said = "" if code is None else f": exit code {code}"
                yield f"{module.__name__}.{name}({base.__name__}){said}"
