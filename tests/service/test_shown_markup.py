"""Markup that browsers show and readers need: from a stretch of HTML to its markdown, with and without the filter."""

from __future__ import annotations

import time

import pytest
from converted_pages import convert, markdown

STORY = "<p>The old harbour was rebuilt after the storm, and the boats came back in the spring of that year.</p>" * 4

KATEX = (
    '<span class="katex"><span class="katex-mathml"><math><semantics><mrow><mi>E</mi><mo>=</mo><mi>m</mi></mrow>'
    '<annotation encoding="application/x-tex">E=m_{a}*\\frac{1}{2}</annotation></semantics></math></span>'
    '<span class="katex-html" aria-hidden="true"><span>E=m</span></span></span>'
)
WIKI = '<img class="mwe-math-fallback-image-inline" src="/m.svg" alt="{\\displaystyle x^{2}}">'
MATHML = "<math><msub><mi>x</mi><mn>1</mn></msub><mo>=</mo><msqrt><mfrac><mi>a</mi><mi>b</mi></mfrac></msqrt></math>"

SHOWN = {
    # Raised and lowered text: 10<sup>3</sup> is not 103.
    "<p>10<sup>3</sup> m<sup>2</sup>, CO<sub>2</sub></p>": "10<sup>3</sup> m<sup>2</sup>, CO<sub>2</sub>",
    "<p>$19<sup>99</sup> or <sup>$</sup>20</p>": "$19<sup>99</sup> or $20",
    "<table><tr><th>a</th></tr><tr><td>10<sup>-6</sup></td></tr></table>": (
        "| a               |\n| --------------- |\n| 10<sup>-6</sup> |"
    ),
    "<h2>In m<sup>2</sup></h2><p><a href=/x>m<sup>2</sup></a></p>": (
        "## In m<sup>2</sup>\n\n[m<sup>2</sup>](https://site.example/x)"
    ),
    "<p><code>x<sup>2</sup></code></p><pre>a<sub>1</sub></pre>": "`x^2`\n\n```\na_1\n```",
    "<p>10<span style='vertical-align: super'>3</span></p>": "10<sup>3</sup>",
    "<p>The 1<sup>st</sup> <sup>[2]</sup> X<sup>TM</sup></p>": "The 1st [2] XTM",
    "<p>one<sup><a href=#f1>1</a></sup></p>": "one[1](https://site.example/docs/page.html#f1)",
    # Formulas, once and as TeX, in the ways in which pages carry it.
    f"<p>so {KATEX} holds</p>": r"so $E=m_{a}*\frac{1}{2}$ holds",
    f"<p><span class=katex-display>{KATEX}</span></p>": r"$$E=m_{a}*\frac{1}{2}$$",
    "<p>a <span class=MathJax_Preview>x</span><span class=MathJax>x2</span> <script type=math/tex>x^2</script> b</p>": (
        "a $x^2$ b"
    ),
    "<p><script type='math/tex; mode=display'>a*b*c</script></p>": "$$a*b*c$$",
    "<p><script type=math/mml><math><msup><mi>x</mi><mn>2</mn></msup></math></script></p>": "$x^{2}$",
    "<p><math alttext='\\alpha_1' display=block><mi>a</mi></math></p>": r"$$\alpha_1$$",
    f"<p>by {WIKI} it</p>": "by $x^{2}$ it",
    f"<p><span class=mwe-math-element><span class=mwe-math-mathml-inline>{MATHML}</span>{WIKI}</span></p>": (
        r"$x_{1}=\sqrt{\frac{a}{b}}$"
    ),
    "<p><img src='//s0.wp.com/latex.php?latex=x' alt='x_1' class=latex> <span data-tex='y_1'><i>y</i></span></p>": (
        "$x_1$ $y_1$"
    ),
    "<p><i class=math data-math=z_1>z</i><i class=math data-math=z_2>z</i></p>": "$z_1$ $z_2$",
    "<p><math><mn>10</mn><math display=block><msup><mi>x</mi><mn>2</mn></msup></math></math></p>": "$10x^{2}$",
    "<p><span class='math inline'>\\(a_1\\)</span> <span class='math inline'><em>b</em><sup>2</sup></span></p>": (
        "$a_1$ *b*<sup>2</sup>"
    ),
    "<p>a \\(x\\_1 &lt; 2\\), \\[y=1\\] and $\\frac{a}{b}$, not $5 or $6 or \\[1\\]</p>": (
        r"a $x\_1 < 2$, $$y=1$$ and $\frac{a}{b}$, not $5 or $6 or \\[1\\]"
    ),
    "<p>\\begin{align}a&amp;=b\\\\c&amp;=d\\end{align}</p>": r"$$\begin{align}a&=b\\c&=d\end{align}$$",
    "<table><tr><td>\\(|a|\\)</td></tr></table>": "| $\\|a\\|$ |\n| --- |",
    "<pre>$\\frac{a}{b}$</pre>": "```\n$\\frac{a}{b}$\n```",
    # Lists: states, levels and numbers.
    "<ul><li><input type=checkbox checked disabled> a</li><li><input type=checkbox> b</li></ul>": "- [x] a\n- [ ] b",
    "<ul><li><label><input type=checkbox checked> a</label></li></ul>": "- [x] a",
    "<ul><li><span role=checkbox aria-checked=true></span> a</li></ul>": "- [x] a",
    "<ul><li>a</li><ul><li>b</li><ol><li>c</li></ol></ul><li>d</li></ul>": "- a\n  - b\n    1. c\n- d",
    "<ol start=5><li>a</li><li value=9>b</li><li>c</li></ol>": "5. a\n\n9) b\n10) c",
    "<ol><li value=1>a</li><li value=2>b</li></ol>": "1. a\n2. b",
    "<ol reversed><li>a</li><li>b</li></ol>": "2. a\n\n1) b",
    # Headings without their permalinks.
    "<h2>A<a href=#a>&#8203;</a></h2><h2>B<a href=#b>\u00b6\ufe0e</a></h2><h2><a href=#c>Anchor for C</a>C</h2>": (
        "## A\n\n## B\n\n## C"
    ),
    "<h2>A<a href=#a aria-label='Link'><img src=/l.png alt=''></a></h2><h2><a href=#links>Links</a></h2>": (
        "## A\n\n## [Links](https://site.example/docs/page.html#links)"
    ),
    "<p><a href=/home aria-label=Home>\uf015</a></p>": "[Home](https://site.example/home)",
    "<p><a href=/a title=A><svg></svg></a></p>": '[A](https://site.example/a "A")',
    # Images that load later, and URLs that are the data themselves.
    "<img src=/spacer.gif data-src=/a.png alt=x>": "![x](https://site.example/a.png)",
    "<img src=/tiny.jpg data-original=/a.png alt=x>": "![x](https://site.example/a.png)",
    "<img src=/blank.gif data-lazyload=/a.png alt=x>": "![x](https://site.example/a.png)",
    "<img src=/a.png data-src=false alt=x>": "![x](https://site.example/a.png)",
    "<img src=/placeholder.svg srcset='/a.png 1x, /b.png 2x' alt=x>": "![x](https://site.example/b.png)",
    "<img src='data:image/gif;base64,R0' data-lazy-src='data:,' data-srcset='/a.png 9w' alt=x>": (
        "![x](https://site.example/a.png)"
    ),
    "<picture><source data-srcset=/a.webp><img src='data:image/gif;base64,R0' alt=x></picture>": (
        "![x](https://site.example/a.webp)"
    ),
    "<img src=/blank.gif alt=x><noscript><img src=/a.png></noscript>": "![x](https://site.example/a.png)",
    "<figure><noscript><img src=/a.png alt=x></noscript></figure>": "![x](https://site.example/a.png)",
    "<p>t<noscript><img src=/pixel.gif alt=tracker></noscript></p>": "t",
    "<p>t<noscript><img src=/a.gif><img src=/b.gif></noscript></p>": "t",
    "<h2>a<a href=#x><h3></h3></a></h2>": "## a",
    "<video>a<audio>b<video src=/v.mp4></video></audio></video><p data-latex='\\a'>x</p>": "$\\a$",
    "<p><a href='data:text/plain;base64,QUJD'>file</a> <a href=' JavaScript:x()'>run</a></p>": "file run",
    "<video controls title=Film><source src='data:video/mp4;base64,QUJD'>Too old.</video><p>t</p>": "t",
    # The rest of what is shown.
    "<p><ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp>字<rt>ji</rt></ruby></p>": "漢(kan)字(ji)",
    "<blockquote>a</blockquote><blockquote>b</blockquote>": "> a\n\n> b",
    "<object data=/a.pdf><a href=/a.pdf>The file</a></object>": "[The file](https://site.example/a.pdf)",
    "<p>in<wbr>come and re&shy;fund</p>": "income and refund",
    "<p><meter value=4 max=5></meter> <progress value=7 max=10>70 %</progress></p>": "4/5 70 %",
    "<table><tr><th>a<tr><td><svg><title>Yes</title></svg><tr><td><i title=No></i></table>": (
        "| a   |\n| --- |\n| Yes |\n| No  |"
    ),
    "<pre><code><span class=ln>1</span>a\n<span class=ln>2</span>b</code></pre>": "```\na\nb\n```",
    "<code><pre>a\n  b<button>Copy</button></pre></code>": "```\na\n  b\n```",
    "<table class=highlighttable><tr><td class=linenos><pre>1\n2</pre><td class=code><pre>a\n  b</pre></table>": (
        "```\na\n  b\n```"
    ),
    "<pre class=linenums><ol><li>a<li>b</ol></pre>": "```\na\nb\n```",
    "<p><del>1</del> <ins>2</ins> <kbd>C</kbd> <q>q</q> <abbr title=Long>L</abbr></p>": '~~1~~ 2 `C` "q" L (Long)',
}


@pytest.mark.parametrize("html", SHOWN)
@pytest.mark.parametrize("only_main_content", [False, True])
def test_what_a_browser_shows_is_in_the_markdown(html: str, only_main_content: bool) -> None:
    text = markdown(f"<main>{STORY}{html}<p>{STORY}</p></main>", only_main_content=only_main_content)
    lines = markdown(STORY, only_main_content=only_main_content)
    assert text.removeprefix(lines).removesuffix(lines).strip("\n") == SHOWN[html]


def test_the_value_of_a_field_is_shown_on_the_whole_page_only() -> None:
    html = (
        "<p>t <input value=42> <input type=submit value=Go> <input type=hidden value=A> <input type=password value=B>"
    )
    assert markdown(html, only_main_content=False) == "t 42 Go"
    assert markdown(f"<main>{STORY}{html}</main>").endswith("\n\nt")


def test_the_html_keeps_formulas_as_they_are() -> None:
    page = convert(f"<p>{KATEX}{WIKI}<script type=math/tex>x^2</script></p>", formats=["html", "images"])
    html = str(page.document["html"])
    assert "katex-html" in html
    assert '<math alttext="x^2"' in html
    assert page.document["images"] == ["https://site.example/m.svg"]


@pytest.mark.parametrize(
    "html",
    [
        "<p>" + "\\(" * 60_000,
        "<p>" + "$\\a" * 60_000,
        "<p>" + "\\begin{a}" * 20_000,
        "<ul><li>a" * 100 + "<ul></ul>" * 5_000,
        "<ol><li value=3>" * 15_000,
        "<p>" + "<math><mi>x</mi></math>" * 8_000,
        "<p>\uf8f10\uf8f2" * 20_000 + "<script type=math/tex>x</script>",
        "<h1>" + "<a href=#>" * 10_000,
    ],
)
def test_hostile_markup_is_converted_in_linear_time(html: str) -> None:
    begun = time.process_time()
    markdown(html, only_main_content=False)
    assert time.process_time() - begun < 5
