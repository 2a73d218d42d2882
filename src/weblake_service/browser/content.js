// Returns the document type and the root element as HTML, or null if they are longer than the limit.
(limit, mark) => {
    const root = document.documentElement;
    if (!root) return '';
    const shadows = [];
    const collect = (parent) => {
        for (const element of parent.querySelectorAll('*')) {
            if (element.shadowRoot?.mode === 'open') {
                shadows.push(element.shadowRoot);
                collect(element.shadowRoot);
            }
        }
    };
    collect(document);
    const hidden = [];
    // Tabs and the answers of an accordion are content, and so is a page that is shown only later.
    const named = new Set(Array.from(document.querySelectorAll('a[href^="#"]'), (link) => link.getAttribute('href').slice(1)));
    for (const control of document.querySelectorAll('[aria-controls]')) {
        for (const id of control.getAttribute('aria-controls').split(/\s+/)) named.add(id);
    }
    const isContent = (element) => element.role === 'tabpanel' || element.getAttribute('hidden') === 'until-found' ||
        (element.id && named.has(element.id));
    const find = (parent) => {
        for (const element of parent.children) {
            if (element.localName === 'noscript') hidden.push(element);
            if (/^(script|style|template|noscript|link|meta|title|select|datalist|svg|math)$/i.test(element.localName)) continue;
            if (getComputedStyle(element).display !== 'none') {
                find(element);
                if (element.shadowRoot) find(element.shadowRoot);
            } else if ((element.shadowRoot || element.textContent.trim()) && !isContent(element)) {
                hidden.push(element);
            }
        }
    };
    if (document.body?.innerText.trim()) find(document.body);
    for (const element of hidden) element.setAttribute(mark, '');
    const open = root.cloneNode(false).outerHTML;
    const inner = shadows.length && root.getHTML ? root.getHTML({ shadowRoots: shadows }) : root.innerHTML;
    for (const element of hidden) element.removeAttribute(mark);
    const type = document.doctype ? new XMLSerializer().serializeToString(document.doctype) : '';
    const html = type + open.replace(/<\/[^<>]*>$/, '') + inner + `</${root.localName}>`;
    return html.length > limit ? null : html;
}
