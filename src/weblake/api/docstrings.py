"""Docstrings that name all parameters: also those of base classes, and options that are taken by keyword.

`help()` shows a class's own docstring only, and the options of a request are in a class of their own.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, is_typeddict

from weblake.api.options import fields as options

T = TypeVar("T")

#: The entries of a docstring in the two forms that are used here: `:param name: text`, and `name: text` below `Args:`.
_PARAM = re.compile(r"^:param (\w+): (.*(?:\n +.*)*)", re.MULTILINE)
_ARGS = re.compile(r"^Args:(?:\n {4}.*)+", re.MULTILINE)
_ARG = re.compile(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)


def entries(documented: object) -> dict[str, str]:
    """Return the texts of the parameters that the docstring of a class or function describes, each as one line."""
    doc = inspect.cleandoc(documented.__doc__ or "")
    found = _PARAM.findall(doc) or _ARG.findall("".join(_ARGS.findall(doc)))
    return {name: " ".join(text.split()) for name, text in found}


class _Docstring:
    """The docstring of a class, which is completed when it is first read: a process that runs a load never does."""

    def __init__(self, own: str | None, fields: Mapping[str, Any] | None) -> None:
        self._own, self._fields = own, fields

    def __get__(self, instance: object, owner: type) -> str | None:
        owner.__doc__ = self._own
        return complete(owner, fields=self._fields).__doc__


def document(target: T, *, fields: Mapping[str, Any] | None = None) -> T:
    """Let `complete` add the parameters to a docstring, of a class when it is first read; also a decorator."""
    if not isinstance(target, type):
        return complete(target)
    target.__doc__ = _Docstring(target.__doc__, fields)  # type: ignore[assignment]
    return target


def complete(target: T, *, fields: Mapping[str, Any] | None = None) -> T:
    """Add to the docstring of a class or function the parameters that it lacks, and return it.

    Args:
        target: A class, which gets the parameters of its bases in the same package; or a function, which gets the
            options that it takes by keyword.
        fields: The fields of a pydantic model, which describe themselves.
    """
    doc, package = inspect.cleandoc(target.__doc__ or ""), target.__module__.partition(".")[0]
    bases = [each for each in getattr(target, "__mro__", ()) if each.__module__.partition(".")[0] == package]
    found, defaults = dict[str, str](), dict[str, object]()
    for source in bases or [target]:
        found = entries(source) | found
        call: Any = vars(source).get("__init__") if bases else target
        parameters = inspect.signature(call).parameters if call else {}
        defaults = {name: each.default for name, each in parameters.items()} | defaults
    for name, field in (fields or {}).items():
        texts = [field.description, *(getattr(each, "description", None) for each in field.metadata)]
        found.setdefault(name, " ".join(next(filter(None, texts), "").split()))
        defaults[name] = None if field.default_factory or field.is_required() else field.default
    found |= {} if bases else _options(target)
    wrap = textwrap.TextWrapper(116, break_long_words=False, break_on_hyphens=False)
    in_params = any(":param " in (each.__doc__ or "") for each in bases)
    wrap.initial_indent, wrap.subsequent_indent = (":param ", " " * 4) if in_params else (" " * 4, " " * 8)
    lines = [
        wrap.fill(f"{name}: {_with_default(found[name], defaults.get(name))}")
        for name in sorted(found.keys() - entries(target), key=[*defaults, *found].index)
    ]
    if not lines:
        return target
    own = _PARAM.search(doc) if in_params else _ARGS.search(doc)
    at = own.end() if own and not in_params else len(doc)
    text = "\n".join([*([] if own else ["\n" if in_params else "\n\nArgs:"]), *lines])
    target.__doc__ = f"{doc[:at]}\n{text}{doc[at:]}" if own else f"{doc}{text}"
    return target


def _with_default(text: str, default: object) -> str:
    shown = getattr(default, "name", None) or repr(default)
    if default in (None, inspect.Parameter.empty) or "<" in shown or "efault" in text:
        return text
    return f"{text} Default {shown}.".strip()


def _options(function: Any) -> dict[str, str]:
    """Return the options that a function takes by keyword: permitted values, or types if they are not of a request."""
    keywords = function.__code__.co_flags & inspect.CO_VARKEYWORDS
    for hint in inspect.get_annotations(function, eval_str=True).values() if keywords else ():
        kind = (*get_args(hint), None)[0]
        if is_typeddict(kind) and kind.__module__.startswith("weblake."):
            texts = {name: options.expected(field.shape) for name, field in options.fields(kind).items()}
            return {name: f"{text[0].upper()}{text[1:]}." for name, text in texts.items()}
        if is_typeddict(kind):
            return {name: f"{getattr(hint, '__forward_arg__', hint)}." for name, hint in kind.__annotations__.items()}
    return {}
