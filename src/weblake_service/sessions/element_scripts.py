"""JavaScript functions that are called on an element of a page (`this`)."""

#: Returns a short description of an element: `button "Send"`.
_DESCRIBE = """
const nameOf = (e) => {
  const tag = e.tagName.toLowerCase() + (e.id ? '#' + e.id : '') +
    (typeof e.className === 'string' && e.className.trim() ? '.' + e.className.trim().split(/\\s+/)[0] : '');
  const said = (e.innerText || e.getAttribute('aria-label') || '').trim().split('\\n')[0].slice(0, 40);
  return said ? `<${tag}> "${said}"` : `<${tag}>`;
};
"""

#: Returns why the element cannot be acted on; empty if it can.
FIND_OBSTACLE = """function () {
  if (!this.isConnected) return 'gone';
  if (this.disabled || this.closest?.('fieldset:disabled')) return 'disabled';
  if (this.getAttribute?.('aria-disabled') === 'true') return 'disabled';
  return '';
}"""

#: Returns the element that covers a point of the window; empty if the element itself is there.
FIND_COVER = (
    "function (x, y) {"
    + _DESCRIBE
    + """
  try {
    for (let view = this.ownerDocument.defaultView; view.frameElement; view = view.parent) {
      const frame = view.frameElement, box = frame.getBoundingClientRect();
      x -= box.left + frame.clientLeft;
      y -= box.top + frame.clientTop;
    }
  } catch { return ''; }
  // By its own root: from outside, what is in a shadow root looks like its host.
  const hit = this.getRootNode().elementFromPoint(x, y);
  if (!hit) return '';
  for (let node = hit; node; node = node.assignedSlot || node.parentNode || node.host) {
    if (node === this) return '';
    if (node.tagName === 'LABEL' && node.control === this) return '';
  }
  // A click on what is around it is heard by the label or the link that it is in.
  const around = this.closest('label, a, button');
  if (around && around.contains(hit)) return '';
  return nameOf(hit);
}"""
)

#: Prepares the element for text input, with all of its text selected. Returns `{trouble}` if it accepts no text,
#: `{done}` if the value had to be set directly.
PREPARE_INPUT = """function (text) {
  const element = this.tagName === 'LABEL' && this.control ? this.control : this;
  if (element.disabled) return { trouble: 'is disabled' };
  if (element.readOnly) return { trouble: 'can only be read' };
  const type = element.tagName === 'INPUT' ? element.type : '';
  if (['checkbox', 'radio', 'button', 'submit', 'reset', 'image', 'file'].includes(type))
    return { trouble: `is an input of type ${type}, which takes no text` };
  if (['color', 'date', 'time', 'datetime-local', 'month', 'range', 'week'].includes(type)) {
    // These have no text to type into. The setter of the class, for frameworks put their own on the element.
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(element, text);
    if (element.value !== text) return { trouble: `is an input of type ${type} and does not take ${text}` };
    element.dispatchEvent(new Event('input', { bubbles: true, composed: true }));
    element.dispatchEvent(new Event('change', { bubbles: true }));
    return { done: true };
  }
  element.focus();
  if (type || element.tagName === 'TEXTAREA') element.select();
  else if (element.isContentEditable) element.ownerDocument.getSelection().selectAllChildren(element);
  else return { trouble: 'takes no text: it is no input, textarea or editable element' };
  return {};
}"""

#: Selects options by value or label. Returns the selected options, or the available ones.
SELECT_OPTIONS = """function (wanted) {
  const element = this.tagName === 'LABEL' && this.control ? this.control : this;
  if (element.tagName !== 'SELECT') return { trouble: 'is no <select>; click it, and then what it shows' };
  if (element.disabled) return { trouble: 'is disabled' };
  const options = [...element.options], label = (option) => option.label.trim();
  const found = wanted.map((one) => options.find((o) => o.value === one) || options.find((o) => label(o) === one));
  const missing = wanted.filter((_, n) => !found[n]);
  if (missing.length)
    return { trouble: `has no option ${missing.join(', ')}; it has: ${options.map(label).slice(0, 50).join(', ')}` };
  if (wanted.length > 1 && !element.multiple) return { trouble: 'takes one option only' };
  for (const option of options) if (element.multiple) option.selected = found.includes(option);
  if (!element.multiple) element.value = found[0].value, found[0].selected = true;
  element.dispatchEvent(new Event('input', { bubbles: true, composed: true }));
  element.dispatchEvent(new Event('change', { bubbles: true }));
  return { chosen: found.map(label) };
}"""

#: Returns whether the element is checked; null if it cannot be checked.
IS_CHECKED = """function () {
  const element = this.tagName === 'LABEL' && this.control ? this.control : this;
  if (element.tagName === 'INPUT' && ['checkbox', 'radio'].includes(element.type)) return element.checked;
  const said = element.getAttribute('aria-checked');
  return said === null ? null : said === 'true';
}"""

#: Scrolls the element, or the scrollable part of the page, and returns its scroll position.
SCROLL_BY = """function (x, y) {
  const scrolls = (e) => e.scrollHeight > e.clientHeight + 1 || e.scrollWidth > e.clientWidth + 1;
  const may = (e) => /auto|scroll|overlay/.test(getComputedStyle(e).overflow);
  const page = document.scrollingElement || document.documentElement;
  let box = this === globalThis ? null : this;
  if (!box && !scrolls(page)) {
    // A page whose frame stands still mostly has one box in the middle that scrolls.
    box = document.elementFromPoint(innerWidth / 2, innerHeight / 2);
    while (box && !(may(box) && scrolls(box))) box = box.parentElement;
  }
  box ||= page;
  box.scrollBy({ left: x, top: y, behavior: 'instant' });
  return [Math.round(box.scrollLeft), Math.round(box.scrollTop)];
}"""

#: Returns whether the element is visible.
IS_VISIBLE = """function () {
  return this.checkVisibility({ visibilityProperty: true }) && this.getClientRects().length > 0;
}"""

#: Returns whether there is a visible element for a CSS selector.
HAS_VISIBLE = f"(css) => [...document.querySelectorAll(css)].some((element) => ({IS_VISIBLE}).call(element))"
