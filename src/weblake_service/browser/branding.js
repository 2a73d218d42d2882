// What an HTML page looks like, by its computed styles: run in an isolated world of the page, returns the contract's `branding`.
// Each colour is one that is really seen; what a page does not show is left out.
() => {
    const MOST = 4000;
    const style = element => getComputedStyle(element);
    const area = element => { const box = element.getBoundingClientRect(); return box.width * box.height; };
    const seen = element => area(element) > 0 && style(element).visibility !== 'hidden';
    const all = [...document.body?.querySelectorAll('*') ?? []].slice(0, MOST).filter(seen);
    const pick = selector => all.find(element => element.matches(selector));
    if (!document.body || !document.contentType.includes('html')) return null;
    const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
    // Any spelling of a colour as [r, g, b, a], as it is drawn.
    const rgba = text => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = '#000';
        canvas.fillStyle = text;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const known = new Map();
    const hex = text => {
        if (!text) return undefined;
        if (!known.has(text)) {
            const [red, green, blue, alpha] = rgba(text);
            known.set(text, alpha < 128 ? undefined
                : '#' + [red, green, blue].map(part => part.toString(16).padStart(2, '0').toUpperCase()).join(''));
        }
        return known.get(text);
    };
    const parts = colour => [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));
    const light = colour => { const [r, g, b] = parts(colour); return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255; };
    const vivid = colour => Math.max(...parts(colour)) - Math.min(...parts(colour)) > 40;
    const tally = () => {
        const counts = new Map();
        return {
            add: (key, weight) => key && counts.set(key, (counts.get(key) ?? 0) + weight),
            ranked: () => [...counts].sort((one, other) => other[1] - one[1]).map(([key]) => key),
        };
    };
    const clean = value => {
        if (Array.isArray(value) || typeof value !== 'object' || value === null) return value;
        const kept = Object.entries(value).map(([key, one]) => [key, clean(one)])
            .filter(([, one]) => one !== undefined && one !== null && one !== '');
        return kept.length ? Object.fromEntries(kept) : undefined;
    };
    const absolute = address => { try { return new URL(address, document.baseURI).href; } catch { return undefined; } };
    const ownText = element => [...element.childNodes].filter(node => node.nodeType === 3)
        .map(node => node.textContent.trim()).join('').length;

    const backdrop = [document.body, document.documentElement].filter(Boolean)
        .map(element => hex(style(element).backgroundColor)).find(Boolean) ?? '#FFFFFF';
    const texts = tally(), strong = tally(), families = tally(), weights = tally(), radii = tally(), gaps = tally();
    const family = element => style(element).fontFamily.split(',')[0].trim().replace(/^["']|["']$/g, '');
    const links = tally();
    for (const element of all) {
        const css = style(element), length = ownText(element);
        if (length) {
            texts.add(hex(css.color), length);
            families.add(family(element), length);
            weights.add(css.fontWeight, length);
            if (element.closest('a[href]')) links.add(hex(css.color), length);
            const colour = hex(css.color);
            if (colour && vivid(colour)) strong.add(colour, length * 40);
        }
        const ground = hex(css.backgroundColor);
        if (ground && ground !== backdrop && vivid(ground)) strong.add(ground, Math.min(area(element), 200000));
        if (css.borderTopLeftRadius !== '0px') radii.add(css.borderTopLeftRadius, 1);
        for (const gap of [css.paddingTop, css.paddingLeft, css.marginBottom, css.rowGap]) {
            const pixels = Math.round(parseFloat(gap));
            if (pixels > 1 && pixels <= 64) gaps.add(pixels, 1);
        }
    }
    const asButton = element => element.matches(
        'button, [role=button], input[type=submit], input[type=button], a[class*=btn i], a[class*=button i]');
    const buttons = all.filter(asButton).map(element => {
        const css = style(element);
        return {
            background: hex(css.backgroundColor), textColor: hex(css.color), borderRadius: css.borderTopLeftRadius,
            borderColor: parseFloat(css.borderTopWidth) > 0 ? hex(css.borderTopColor) : undefined,
        };
    });
    const filled = buttons.find(one => one.background && vivid(one.background))
        ?? buttons.find(one => one.background && one.background !== backdrop) ?? buttons[0];
    const second = buttons.find(one => one !== filled
        && (one.background !== filled?.background || one.textColor !== filled?.textColor));
    if (filled?.background) strong.add(filled.background, 100000);

    const body = document.body ? style(document.body) : undefined;
    const ranked = strong.ranked(), written = texts.ranked(), ofBody = body && hex(body.color);
    const named = word => {
        const element = all.find(one => [...one.classList].some(name => name.toLowerCase().split(/[-_]/).includes(word)));
        const css = element && style(element);
        return css && [hex(css.backgroundColor), hex(css.color), hex(css.borderTopColor)].find(one => one && vivid(one));
    };
    const size = selector => { const found = pick(selector); return found && style(found).fontSize; };
    const heading = pick('h1') ?? pick('h2'), code = pick('code, pre, kbd');
    const paragraph = pick('main p, article p') ?? pick('p') ?? document.body;
    const weighing = weights.ranked().map(Number);
    const near = (low, high) => weighing.find(one => one >= low && one <= high);
    const padding = element => element && style(element).padding;

    const marks = [
        'header img[class*=logo i], header img[alt*=logo i], header img[src*=logo i]',
        'img[class*=logo i], img[id*=logo i], img[alt*=logo i], img[src*=logo i]', '[class*=logo i] img',
        'header a[href="/"] img', 'nav a[href="/"] img',
    ];
    const mark = marks.map(pick).find(Boolean);
    const drawn = pick('[class*=logo i] svg, svg[class*=logo i], header a[href="/"] svg');
    const logo = mark ? absolute(mark.currentSrc || mark.getAttribute('src'))
        : drawn ? 'data:image/svg+xml;utf8,' + encodeURIComponent(drawn.outerHTML.slice(0, 50000)) : undefined;
    const icon = document.querySelector('link[rel~=icon][href], link[rel="shortcut icon"][href], link[rel="apple-touch-icon"][href]');
    const graph = document.querySelector('meta[property="og:image"][content], meta[name="og:image"][content]');
    const field = pick('input:not([type=hidden]):not([type=submit]):not([type=button]), textarea, select');
    const declared = style(document.documentElement).colorScheme;
    const scheme = declared === 'dark' || light(backdrop) < 0.4 ? 'dark' : 'light';
    const units = gaps.ranked();
    const unit = [8, 4, 5, 6, 10].find(one => units.slice(0, 5).filter(gap => gap % one === 0).length >= 3);

    return clean({
        colorScheme: scheme,
        logo,
        colors: {
            primary: ranked[0], secondary: ranked[1], accent: ranked[2] ?? links.ranked()[0],
            background: backdrop, textPrimary: written[0] ?? ofBody,
            textSecondary: written.find(one => one !== (written[0] ?? ofBody) && !vivid(one)),
            link: links.ranked()[0], success: named('success'), warning: named('warning'),
            error: named('error') ?? named('danger'),
        },
        fonts: families.ranked().slice(0, 8).map(one => ({family: one})),
        typography: {
            fontFamilies: {
                primary: paragraph && family(paragraph), heading: heading && family(heading), code: code && family(code),
            },
            fontSizes: {h1: size('h1'), h2: size('h2'), h3: size('h3'), body: paragraph && style(paragraph).fontSize},
            fontWeights: {light: near(100, 300), regular: near(400, 400), medium: near(500, 600), bold: near(700, 900)},
            lineHeights: {heading: heading && style(heading).lineHeight, body: paragraph && style(paragraph).lineHeight},
        },
        spacing: {
            baseUnit: unit, borderRadius: radii.ranked()[0],
            padding: {button: padding(all.find(asButton)), input: padding(field)},
            margins: {heading: heading && style(heading).margin, paragraph: paragraph && style(paragraph).margin},
        },
        components: {
            buttonPrimary: filled && {background: filled.background, textColor: filled.textColor, borderRadius: filled.borderRadius},
            buttonSecondary: second,
            input: field && {
                background: hex(style(field).backgroundColor), textColor: hex(style(field).color),
                borderColor: hex(style(field).borderTopColor), borderRadius: style(field).borderTopLeftRadius,
            },
        },
        images: {logo, favicon: icon && absolute(icon.getAttribute('href')), ogImage: graph && absolute(graph.content)},
    }) ?? {};
}
