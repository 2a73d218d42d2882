"""The accessibility snapshot of a page: one line for each element, with a ref to act on it (`@e5`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from weblake_service.sessions.attached_page import AttachedPage, PageActionError

#: Roles of elements that accept actions.
_INTERACTIVE_ROLES = {
    "button", "checkbox", "combobox", "link", "listbox", "menuitem", "menuitemcheckbox", "menuitemradio", "option",
    "radio", "searchbox", "slider", "spinbutton", "switch", "tab", "textbox", "treeitem", "DisclosureTriangle",
    "Date", "DateTime", "InputTime", "ColorWell", "PopUpButton",
}  # fmt: skip
#: Further roles that get a ref, because their text is often requested.
_REFERENCED_ROLES = {
    "heading",
    "image",
    "img",
    "cell",
    "gridcell",
    "columnheader",
    "rowheader",
    "region",
    "dialog",
    "alert",
}
#: Container roles without information of their own; their children take their place.
_CONTAINER_ROLES = {
    "none",
    "generic",
    "InlineTextBox",
    "LineBreak",
    "presentation",
    "Abbr",
    "LayoutTable",
    "LayoutTableRow",
}
_CONTAINER_ROLES |= {"LayoutTableCell", "strong", "emphasis", "code", "mark", "superscript", "subscript"}
#: Chromium's internal roles, by their common names.
_ROLE_NAMES = {
    "StaticText": "text", "RootWebArea": "document", "image": "img", "DisclosureTriangle": "button", "Iframe": "iframe",
    "PopUpButton": "combobox", "Date": "textbox", "DateTime": "textbox", "InputTime": "textbox", "LabelText": "label",
}  # fmt: skip
#: Roles that are one element for the user, whatever their internal structure in the browser.
_SINGLE_ELEMENT_ROLES = {"Date", "DateTime", "InputTime", "ColorWell", "slider", "spinbutton"}
_STATES = ("checked", "disabled", "expanded", "level", "pressed", "required", "selected")
#: Maximum characters of a name or value in a line.
_MAX_CHARS = 300
_MAX_DEPTH = 200


@dataclass(frozen=True)
class Ref:
    """An element with a ref in a snapshot."""

    #: The browser's id of the element (backendNodeId).
    node: int
    role: str
    name: str


@dataclass(frozen=True)
class Snapshot:
    """The text of a snapshot, and the elements of its refs."""

    text: str
    refs: dict[str, Ref]
    #: The id of the document load (loader) that the refs belong to.
    loader: str


@dataclass
class _Line:
    role: str
    name: str
    states: str
    value: str
    node: int
    below: list[_Line] = field(default_factory=list)


async def take_snapshot(
    page: AttachedPage,
    *,
    interactive: bool = False,
    compact: bool = False,
    depth: int | None = None,
    root: int | None = None,
) -> Snapshot:
    """Return a snapshot of the current content of a page.

    :param interactive: only elements that accept actions :param compact: omits elements without a name or text of their
    own or of a descendant :param depth: maximum number of levels below the first :param root: only the content of this
    element (backendNodeId)

    Raises:
        PageActionError: The page does not respond, or the element is not visible.
    """
    loader = await page.loader()
    lines = await _frame(page, None, root)
    if root is not None and not lines:
        raise PageActionError("There is nothing to see of this element: it is hidden, or in a frame.")
    if len(lines) == 1 and lines[0].role == "document":
        lines = lines[0].below
    refs: dict[str, Ref] = {}
    if interactive:
        lines = [line for line in _flatten(lines) if line.role in _INTERACTIVE_NAMES and line.node]
        for line in lines:
            line.below = [option for option in line.below if option.role == "option" and not option.node]
    if compact:
        lines = _compact(lines)
    text_lines = list(_format_line(lines, 0, depth, refs))
    return Snapshot("\n".join(text_lines) or "(nothing to see on this page)", refs, loader)


async def _frame(page: AttachedPage, frame: str | None, root: int | None) -> list[_Line]:
    """Return the lines of a frame, and of its same-site child frames."""
    command_params = {"frameId": frame} if frame else {}
    nodes = (await page.send("Accessibility.getFullAXTree", command_params))["nodes"]
    by_id = {node["nodeId"]: node for node in nodes}
    if root is None:
        tops = [node for node in nodes if node.get("parentId") not in by_id]
    else:
        tops = [node for node in nodes if node.get("backendDOMNodeId") == root]
    lines = [line for node in tops for line in _lines(node, by_id, 0)]
    for line in list(_flatten(lines)):
        if line.role == "iframe" and not line.below:
            line.below = await _frame_below(page, line.node)
    return lines


async def _frame_below(page: AttachedPage, node: int) -> list[_Line]:
    try:
        owner = (await page.send("DOM.describeNode", {"backendNodeId": node}))["node"]
        lines = await _frame(page, owner["frameId"], None)
    except (PageActionError, KeyError):
        # A cross-site frame is in another process, to which this session is not attached.
        return [_Line("text", "(a frame of another site; open its address to see it)", "", "", 0)]
    return lines[0].below if len(lines) == 1 and lines[0].role == "document" else lines


def _lines(node: Mapping[str, Any], by_id: Mapping[str, Mapping[str, Any]], deep: int) -> list[_Line]:
    """Return the lines of a node and its descendants, or only of the descendants if the node has no information."""
    role = str(node.get("role", {}).get("value", ""))
    name = _shorten(node.get("name", {}).get("value", ""))
    children = [by_id[child] for child in node.get("childIds", ()) if child in by_id] if deep < _MAX_DEPTH else []
    below = (
        [line for child in children for line in _lines(child, by_id, deep + 1)]
        if role not in _SINGLE_ELEMENT_ROLES
        else []
    )
    if role == "MenuListPopup":
        # The options of a <select> are selected and not clicked: they get no refs.
        return [_Line(line.role, line.name, line.states, "", 0) for line in below]
    if node.get("ignored") or (role in _CONTAINER_ROLES and not (name and _can_focus(node))):
        return _merge_texts(below)
    if role == "StaticText":
        return [_Line("text", name, "", "", 0)] if name else []
    if role == "ListMarker":
        return []
    line = _Line(
        _ROLE_NAMES.get(role, role),
        name,
        _format_states(node),
        "",
        int(node.get("backendDOMNodeId", 0)),
        _merge_texts(below),
    )
    value = "" if role in {"checkbox", "radio", "option"} else _shorten(node.get("value", {}).get("value", ""))
    texts = [lower.name for lower in line.below] if all(lower.role == "text" for lower in line.below) else None
    if texts is not None:
        content = " ".join(texts)
        # The name of an element and its text are usually the same.
        if not name:
            value = value or content
        if line.role != "iframe" and (not name or content in name or name in content or content == value):
            line.below = []
    line.value = "" if value == name else value
    return [line]


def _merge_texts(lines: list[_Line]) -> list[_Line]:
    """Return the lines with adjacent texts merged, because inline formatting splits a text into several nodes."""
    joined: list[_Line] = []
    for line in lines:
        if line.role == "text" and joined and joined[-1].role == "text":
            joined[-1] = _Line("text", _shorten(f"{joined[-1].name} {line.name}"), "", "", 0)
        else:
            joined.append(line)
    return joined


def _flatten(lines: list[_Line]) -> Iterator[_Line]:
    for line in lines:
        yield line
        yield from _flatten(line.below)


def _compact(lines: list[_Line]) -> list[_Line]:
    kept = []
    for line in lines:
        line.below = _compact(line.below)
        if line.name or line.value or line.role in _INTERACTIVE_NAMES:
            kept.append(line)
        else:
            # A container without a name is replaced by its children.
            kept += line.below
    return kept


def _format_line(lines: list[_Line], level: int, depth: int | None, refs: dict[str, Ref]) -> Iterator[str]:
    for line in lines:
        text = "  " * level + "- " + line.role
        if line.role == "text":
            yield f"{text}: {line.name}"
            continue
        text += (f' "{line.name}"' if line.name else "") + line.states
        if line.node and (
            line.role in _INTERACTIVE_NAMES or (line.role in _REFERENCED_ROLES and (line.name or line.value))
        ):
            ref = f"e{len(refs) + 1}"
            refs[ref] = Ref(line.node, line.role, line.name)
            text += f" [ref={ref}]"
        yield text + (f": {line.value}" if line.value else "")
        if depth is None or level < depth:
            yield from _format_line(line.below, level + 1, depth, refs)


def _format_states(node: Mapping[str, Any]) -> str:
    properties = {item["name"]: item["value"].get("value") for item in node.get("properties", ())}
    text = ""
    for state in _STATES:
        value = properties.get(state)
        if value in (None, False, "false", ""):
            # "expanded: false" is useful; other states are listed only if they are true.
            text += " [collapsed]" if state == "expanded" and value is False else ""
        else:
            text += f" [{state}]" if value is True or value == "true" else f" [{state}={value}]"
    return text


def _can_focus(node: Mapping[str, Any]) -> bool:
    return any(item["name"] == "focusable" and item["value"].get("value") for item in node.get("properties", ()))


def _shorten(text: object) -> str:
    words = " ".join(str(text).split())
    return words if len(words) <= _MAX_CHARS else words[: _MAX_CHARS - 1] + "…"


_INTERACTIVE_NAMES = {_ROLE_NAMES.get(role, role) for role in _INTERACTIVE_ROLES}
