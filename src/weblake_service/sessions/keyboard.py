"""Keyboard events by key name: `Enter`, `Control+a`, `Shift+Tab`, `x`.

The layout is a US keyboard; other characters are inserted without a key.
"""

from __future__ import annotations

from dataclasses import dataclass

from weblake_service.sessions.attached_page import PageActionError

#: Modifiers and their bits.
MODIFIERS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}
_MODIFIER_ALIASES = {"ctrl": "Control", "control": "Control", "alt": "Alt", "option": "Alt", "shift": "Shift"}
_MODIFIER_ALIASES |= {"meta": "Meta", "cmd": "Meta", "command": "Meta", "controlormeta": "Control"}
#: Key names and their Windows virtual key codes.
_NAMED_KEYS = {
    "Backspace": 8, "Tab": 9, "Enter": 13, "Pause": 19, "CapsLock": 20, "Escape": 27, "PageUp": 33, "PageDown": 34,
    "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Insert": 45,
    "Delete": 46, "ContextMenu": 93, **{f"F{n}": 111 + n for n in range(1, 13)},
}  # fmt: skip
_KEY_ALIASES = {"return": "Enter", "esc": "Escape", "del": "Delete", "space": " ", "spacebar": " "}
_KEY_ALIASES |= {"up": "ArrowUp", "down": "ArrowDown", "left": "ArrowLeft", "right": "ArrowRight"}
#: Punctuation keys: the characters without and with Shift, the code, the key code.
_PUNCTUATION = [
    ("`~", "Backquote", 192), ("1!", "Digit1", 49), ("2@", "Digit2", 50), ("3#", "Digit3", 51), ("4$", "Digit4", 52),
    ("5%", "Digit5", 53), ("6^", "Digit6", 54), ("7&", "Digit7", 55), ("8*", "Digit8", 56), ("9(", "Digit9", 57),
    ("0)", "Digit0", 48), ("-_", "Minus", 189), ("=+", "Equal", 187), ("[{", "BracketLeft", 219),
    ("]}", "BracketRight", 221), ("\\|", "Backslash", 220), (";:", "Semicolon", 186), ("'\"", "Quote", 222),
    (",<", "Comma", 188), (".>", "Period", 190), ("/?", "Slash", 191),
]  # fmt: skip


@dataclass(frozen=True)
class Key:
    """One key with the fields of its DOM event."""

    key: str
    code: str
    number: int
    #: The text that it types; empty for none.
    text: str = ""
    #: Whether Shift must be held for this character.
    shifted: bool = False

    def event(self, kind: str, modifiers: int) -> dict[str, object]:
        """Return the parameters of Input.dispatchKeyEvent for `down` or `up`."""
        parameters: dict[str, object] = {
            "key": self.key,
            "code": self.code,
            "windowsVirtualKeyCode": self.number,
            "modifiers": modifiers,
            "location": 1 if self.key in MODIFIERS else 0,
        }
        if kind == "up":
            return {**parameters, "type": "keyUp"}
        # With Control, Alt or Meta a key types nothing: it is a shortcut.
        text = "" if modifiers & ~MODIFIERS["Shift"] else self.text
        if not text:
            return {**parameters, "type": "rawKeyDown"}
        return {**parameters, "type": "keyDown", "text": text, "unmodifiedText": text}


def _all_keys() -> dict[str, Key]:
    keys = {name: Key(name, name, number) for name, number in _NAMED_KEYS.items()}
    keys["Enter"] = Key("Enter", "Enter", 13, "\r")
    keys[" "] = Key(" ", "Space", 32, " ")
    numbers = {"Shift": 16, "Control": 17, "Alt": 18, "Meta": 91}
    keys |= {name: Key(name, f"{name}Left", number) for name, number in numbers.items()}
    for letter in "abcdefghijklmnopqrstuvwxyz":
        upper = letter.upper()
        keys[letter] = Key(letter, f"Key{upper}", ord(upper), letter)
        keys[upper] = Key(upper, f"Key{upper}", ord(upper), upper, shifted=True)
    for both, code, number in _PUNCTUATION:
        plain, shifted = both[0], both[1]
        keys[plain] = Key(plain, code, number, plain)
        keys[shifted] = Key(shifted, code, number, shifted, shifted=True)
    return keys


KEYS = _all_keys()
_KEY_BY_LOWER_NAME = {name.lower(): name for name in KEYS if len(name) > 1}


def parse_chord(names: str) -> tuple[list[Key], Key]:
    """Return the modifiers and the key that a text such as `Control+Shift+a` names.

    Raises:
        PageActionError: There is no such key.
    """
    parts = names.split("+")
    # `+` is also a key: `Control++`, `+`.
    if names.endswith("+"):
        parts = [*names[:-1].rstrip("+").split("+"), "+"] if len(names) > 1 else ["+"]
    held = []
    for name in parts[:-1]:
        modifier = _MODIFIER_ALIASES.get(name.strip().lower())
        if modifier is None:
            raise PageActionError(f"{name!r} of {names!r} is no modifier; there are Control, Shift, Alt and Meta.")
        held.append(KEYS[modifier])
    return held, _key(parts[-1], names)


def _key(name: str, names: str) -> Key:
    if name in KEYS:
        return KEYS[name]
    lower = name.strip().lower()
    known = _MODIFIER_ALIASES.get(lower) or _KEY_ALIASES.get(lower) or _KEY_BY_LOWER_NAME.get(lower)
    if known is None:
        example = "Enter, Tab, Escape, ArrowDown, PageDown, F5, a, Control+a"
        raise PageActionError(
            f"There is no key {names!r}; keys are named like {example}. To write text, type or fill it."
        )
    return KEYS[known]
