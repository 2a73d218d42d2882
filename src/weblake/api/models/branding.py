"""Typed views of the branding format: the visual identity of a site."""

from __future__ import annotations

from msgspec import field

from weblake.api.models.lenient import Model, Number


class BrandColors(Model, frozen=True):
    """Colours in CSS notation."""

    primary: str | None = None
    secondary: str | None = None
    accent: str | None = None
    background: str | None = None
    text_primary: str | None = None
    text_secondary: str | None = None
    link: str | None = None
    success: str | None = None
    warning: str | None = None
    error: str | None = None


class BrandFont(Model, frozen=True):
    """One font."""

    family: str | None = None


class FontFamilies(Model, frozen=True):
    """Font families by role."""

    primary: str | None = None
    heading: str | None = None
    code: str | None = None


class FontSizes(Model, frozen=True):
    """Font sizes with their units."""

    h1: str | None = None
    h2: str | None = None
    h3: str | None = None
    body: str | None = None


class FontWeights(Model, frozen=True):
    """Font weights."""

    light: Number | None = None
    regular: Number | None = None
    medium: Number | None = None
    bold: Number | None = None


class LineHeights(Model, frozen=True):
    """Line heights."""

    heading: str | None = None
    body: str | None = None


class Typography(Model, frozen=True):
    """Typography of the text."""

    font_families: FontFamilies = field(default_factory=FontFamilies)
    font_sizes: FontSizes = field(default_factory=FontSizes)
    font_weights: FontWeights = field(default_factory=FontWeights)
    line_heights: LineHeights = field(default_factory=LineHeights)


class Spacing(Model, frozen=True):
    """Spacing between elements."""

    base_unit: Number | None = None
    border_radius: str | None = None
    padding: dict[str, object] = field(default_factory=dict)
    margins: dict[str, object] = field(default_factory=dict)


class BrandButton(Model, frozen=True):
    """Style of one kind of button."""

    background: str | None = None
    text_color: str | None = None
    border_color: str | None = None
    border_radius: str | None = None


class BrandComponents(Model, frozen=True):
    """Components of the page."""

    button_primary: BrandButton = field(default_factory=BrandButton)
    button_secondary: BrandButton = field(default_factory=BrandButton)
    input: dict[str, object] = field(default_factory=dict)


class BrandImages(Model, frozen=True):
    """URLs of images."""

    logo: str | None = None
    favicon: str | None = None
    og_image: str | None = None


class Branding(Model, frozen=True):
    """The visual identity of a site."""

    color_scheme: str | None = None
    logo: str | None = None
    colors: BrandColors = field(default_factory=BrandColors)
    fonts: list[BrandFont] = field(default_factory=list)
    typography: Typography = field(default_factory=Typography)
    spacing: Spacing = field(default_factory=Spacing)
    components: BrandComponents = field(default_factory=BrandComponents)
    icons: dict[str, object] = field(default_factory=dict)
    images: BrandImages = field(default_factory=BrandImages)
    animations: dict[str, object] = field(default_factory=dict)
    layout: dict[str, object] = field(default_factory=dict)
    personality: dict[str, object] = field(default_factory=dict)
