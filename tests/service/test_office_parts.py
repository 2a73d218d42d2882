"""Parts of office files that their converter does not read: from the XML of a part to the document's markdown."""

from __future__ import annotations

import io
import time
import zipfile
from typing import Any

import parse_lab
import pytest

from weblake_service.files.office_parts import missing_words, rewrite_parts

parsing = parse_lab.parsing

OPEN_XML = "http://schemas.openxmlformats.org"
TYPES = (
    '<Types xmlns="{0}/package/2006/content-types"><Default Extension="xml" ContentType="application/xml"/>'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Override PartName="/{1}" ContentType="application/vnd.openxmlformats-officedocument.{2}.main+xml"/></Types>'
)
RELATION = '<Relationship Id="{0}" Type="' + OPEN_XML + '/officeDocument/2006/relationships/{0}" Target="{1}"/>'
RELATIONS = f'<Relationships xmlns="{OPEN_XML}/package/2006/relationships">{{}}</Relationships>'
WORD = (
    f'xmlns:w="{OPEN_XML}/wordprocessingml/2006/main" xmlns:m="{OPEN_XML}/officeDocument/2006/math" '
    f'xmlns:mc="{OPEN_XML}/markup-compatibility/2006" xmlns:v="urn:schemas-microsoft-com:vml" '
    'xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape"'
)
SHEET = f'xmlns="{OPEN_XML}/spreadsheetml/2006/main"'


def package(parts: dict[str, str]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return file.getvalue()


def docx(body: str, **more: str) -> bytes:
    main = "word/document.xml"
    return package(
        {
            "[Content_Types].xml": TYPES.format(OPEN_XML, main, "wordprocessingml.document"),
            "_rels/.rels": RELATIONS.format(RELATION.format("officeDocument", main)),
            main: f"<w:document {WORD}><w:body>{body}</w:body></w:document>",
            **{f"word/{name}.xml": f"<w:part {WORD}>{content}</w:part>" for name, content in more.items()},
        }
    )


def xlsx(cells: str, strings: str = "", comments: str = "") -> bytes:
    main = "xl/workbook.xml"
    sheets = '<sheet name="S" sheetId="1" r:id="worksheet"/>'
    relations = RELATION.format("worksheet", "worksheets/sheet1.xml") + RELATION.format(
        "sharedStrings", "sharedStrings.xml"
    )
    return package(
        {
            "[Content_Types].xml": TYPES.format(OPEN_XML, main, "spreadsheetml.sheet"),
            "_rels/.rels": RELATIONS.format(RELATION.format("officeDocument", main)),
            main: f'<workbook {SHEET} xmlns:r="{OPEN_XML}/officeDocument/2006/relationships"><sheets>{sheets}</sheets>'
            "</workbook>",
            "xl/_rels/workbook.xml.rels": RELATIONS.format(relations),
            "xl/sharedStrings.xml": f"<sst {SHEET}>{strings}</sst>",
            "xl/worksheets/sheet1.xml": f"<worksheet {SHEET}><sheetData><row>{cells}</row></sheetData></worksheet>",
            "xl/comments/comment1.xml": f"<comments {SHEET}>{comments}</comments>",
        }
    )


def odt(body: str, styles: str = "") -> bytes:
    names = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{space}:1.0"'
        for name, space in {"office": "office", "text": "text", "style": "style", "fo": "xsl-fo-compatible"}.items()
    )
    return package(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": f"<office:document-content {names}><office:automatic-styles>{styles}"
            f"</office:automatic-styles><office:body><office:text>{body}</office:text></office:body></office:document-content>",
        }
    )


def run(text: str, properties: str = "") -> str:
    return f'<w:r>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(*runs: str) -> str:
    return f"<w:p>{''.join(runs)}</w:p>"


def row(*cells: str) -> str:
    return f"<w:tr>{''.join(f'<w:tc>{paragraph(run(cell))}</w:tc>' for cell in cells)}</w:tr>"


def control(content: str) -> str:
    return f'<w:sdt><w:sdtPr><w:alias w:val="x"/></w:sdtPr><w:sdtContent>{content}</w:sdtContent></w:sdt>'


SUPER, SUB = (f'<w:rPr><w:b/><w:vertAlign w:val="{where}script"/></w:rPr>' for where in ("super", "sub"))
BOX = f"<w:txbxContent>{paragraph(run('boxed'))}</w:txbxContent>"
TABLE = "| a | b |\n| --- | --- |\n| c | d |"

WORD_BODIES = {
    f"<w:tbl>{row('a', 'b')}{control(row('c', 'd'))}</w:tbl>": TABLE,
    f"<w:tbl>{control(control(row('a', 'b')) + row('c', 'd'))}</w:tbl>": TABLE,
    f'<w:tbl>{row("a", "b")}<w:customXml w:element="e"><w:customXmlPr/>{row("c", "d")}</w:customXml></w:tbl>': TABLE,
    f'<w:tbl>{row("a", "b")}<w:ins w:id="1">{row("c", "d")}</w:ins></w:tbl>': TABLE,
    f"<w:tbl><w:tr>{control('<w:tc>' + paragraph(run('a')) + '</w:tc>')}</w:tr></w:tbl>": "| a |\n| --- |",
    control(paragraph(run("block"))) + paragraph(run("in "), control(run("line"))): "block\n\nin line",
    paragraph("<w:r><w:t>10</w:t><w:noBreakHyphen/><w:t>20</w:t><w:softHyphen/><w:t>0</w:t></w:r>"): "10-200",
    paragraph("<w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t></w:r>"): "a b  \nc",
    paragraph(
        run("5 "),
        '<w:r><w:sym w:font="Symbol" w:char="F06D"/><w:t>m </w:t><w:sym w:char="F0FC" w:font="Wingdings"/>'
        '<w:sym w:font="Other" w:char="F021"/></w:r>',
    ): "5 μm ✓□",
    paragraph(
        "<w:r><w:ruby><w:rubyPr/><w:rt><w:r><w:t>kan</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>漢</w:t></w:r></w:rubyBase>"
        "</w:ruby></w:r>"
    ): "漢(kan)",
    paragraph(run("10"), run("3", SUPER), run(" H"), run("2", SUB), run("O")): "10**<sup>3</sup>** H**<sub>2</sub>**O",
    f"<w:p><w:pPr>{SUPER}</w:pPr>{run('10')}{run('3')}</w:p>": "103",
    paragraph(
        f'<w:ins w:id="1">{run("new")}</w:ins><w:del w:id="2"><w:r><w:delText>old</w:delText></w:r></w:del>',
        f"<w:moveFrom>{run('here')}</w:moveFrom><w:moveTo>{run(' there')}</w:moveTo>",
        f'<w:smartTag w:element="e">{run(" smart")}</w:smartTag><w:fldSimple w:instr="PAGE">{run(" 7")}</w:fldSimple>',
    ): "new there smart 7",
    paragraph(
        f'<w:r><mc:AlternateContent><mc:Choice Requires="wps"><w:drawing><wps:txbx>{BOX}</wps:txbx></w:drawing>'
        f"</mc:Choice><mc:Fallback><w:pict><v:textbox>{BOX}</v:textbox></w:pict></mc:Fallback></mc:AlternateContent></w:r>"
    ): "boxed",
    paragraph(
        "<m:oMath><m:sSup><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup></m:oMath>"
    ): "$x^{2}$",
}


@pytest.mark.parametrize("body", WORD_BODIES)
def test_all_text_of_a_word_document_is_converted(parsing: Any, body: str) -> None:
    document = parsing.parse("a.docx", docx(body))
    assert document["markdown"] == WORD_BODIES[body]
    assert "warning" not in document


@pytest.mark.parametrize(
    ("cells", "strings", "line"),
    [
        ('<c r="A1" t="s"><v>0</v></c>', "<si><t>a_x000D_\nb_x0041_</t></si>", "| a bA |"),
        (
            '<c r="A1" t="s"><v>0</v></c>',
            "<si><t>_x005F_x0041_ _x003C_b_x003E_</t></si>",
            "| \\_x0041_ \\<b> |",
        ),
        ('<c r="A1" t="inlineStr"><is><t>in_x0041_l</t></is></c>', "", "| inAl |"),
        ('<c r="A1" t="str"><f>A</f><v>f_x000D__x000A_g_xD83D_</v></c>', "", "| f g |"),
        (
            '<c r="A1" t="s"><v>0</v></c><c r="B1"><f>1+1</f><v>2</v></c>',
            '<si><r><t>10</t></r><r><rPr><vertAlign val="superscript"/></rPr><t>3</t></r></si>',
            "| 10<sup>3</sup> | 2 |",
        ),
    ],
)
def test_escapes_and_rich_text_of_a_spreadsheet_are_read(parsing: Any, cells: str, strings: str, line: str) -> None:
    document = parsing.parse("a.xlsx", xlsx(cells, strings), formats=["markdown", "html"])
    assert document["markdown"].splitlines()[-1] == line
    assert "_x000D_" not in document["html"]
    assert "warning" not in document


def test_raised_text_of_an_open_document_and_of_rich_text_is_kept(parsing: Any) -> None:
    styles = (
        '<style:style style:name="T1" style:family="text"><style:text-properties fo:color="#000"/></style:style>'
        '<style:style style:name="T2" style:family="text"><style:text-properties style:text-position="super 58%"/>'
        '</style:style><style:style style:name="T3" style:family="text">'
        '<style:text-properties style:text-position="-33% 58%"/></style:style>'
    )
    spans = [f'<text:span text:style-name="T{at}">{at}</text:span>' for at in (1, 2, 3)]
    document = parsing.parse("a.odt", odt(f"<text:p>10{''.join(spans)}</text:p>", styles))
    assert document["markdown"] == "101<sup>2</sup><sub>3</sub>"
    rich = rb"{\rtf1 10{\super\b0 3}{\super\chftn} H{\sub 2}O}"
    assert parsing.parse("a.rtf", rich)["markdown"] == "10<sup>3</sup> H<sub>2</sub>O"
    assert "warning" not in document


@pytest.mark.parametrize(
    ("name", "file", "part"),
    [
        ("a.docx", docx(paragraph(run("shown")), header1=paragraph(run("shown ACME"))), "word/header1.xml (2 words)"),
        ("a.docx", docx(paragraph(run("shown")), **{"charts/chart1": run("Title")}), "word/charts/chart1.xml (1 word)"),
        ("a.docx", docx(paragraph(run("shown")), comments=paragraph(run("why?"))), "word/comments.xml (1 word)"),
        (
            "a.docx",
            docx(
                f'<w:tbl>{row("shown")}<mc:AlternateContent><mc:Choice Requires="wps">{row("lost")}</mc:Choice>'
                "</mc:AlternateContent></w:tbl>"
            ),
            "word/document.xml (1 word)",
        ),
        (
            "a.xlsx",
            xlsx('<c r="A1" t="inlineStr"><is><t>shown</t></is></c>', comments="<t>a note</t>"),
            "xl/comments/comment1.xml (2 words)",
        ),
        (
            "a.odt",
            odt(
                "<text:p>shown<office:annotation><text:p>a note</text:p></office:annotation></text:p>"
                "<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>"
            ),
            "content.xml (2 words)",
        ),
    ],
)
def test_parts_whose_words_are_missing_are_named_in_a_warning(parsing: Any, name: str, file: bytes, part: str) -> None:
    document = parsing.parse(name, file)
    assert "shown" in document["markdown"]
    assert document["warning"] == f"Text of these parts of the file is not in the result: {part}."


@pytest.mark.parametrize(
    "part",
    [
        "<w:sdtPr>",
        "<w:ruby><w:rubyBase>",
        "<mc:Fallback>",
        'vertAlign w:val="superscript"/>',
        '<w:r>baseline="3">',
        '<style:style style:name="a" ',
    ],
)
def test_hostile_parts_are_searched_in_linear_time(part: str) -> None:
    file = package({"word/document.xml": part * 50_000, "content.xml": part * 50_000})
    begun = time.process_time()
    assert missing_words(rewrite_parts(file), "text") == ""
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("body", [b"", b"{\\rtf1 text}", b"PK\x03\x04 cut off", docx("text")[:-30]])
def test_a_file_that_is_no_zip_file_is_unchanged(body: bytes) -> None:
    assert rewrite_parts(body) == body
    assert missing_words(body, "") == ""
