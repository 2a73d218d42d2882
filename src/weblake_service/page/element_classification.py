"""Classifies elements by tag, ARIA role, class and id: navigation, consent, comments.

Names are split into words (`site-nav`, `navBar`, `footer__links`), which map to a set of flags. Only containers of
other blocks are classified by name; a heading or a paragraph is classified by its text.
"""

from __future__ import annotations

import re
from functools import lru_cache


class ElementRole:
    """Role flags of an element, from its tag, ARIA role, classes and id."""

    #: Never content: navigation, footers, consent, sharing.
    CHROME = 1
    #: Marked by an HTML or ARIA landmark, and not only by a name.
    LANDMARK = 2
    #: Often supplementary, sometimes content: banners, drawers, filters.
    ASIDE = 4
    #: Links to other pages: related articles, recommendations.
    RELATED = 8
    COMMENTS = 16
    REVIEWS = 32
    #: A button or form that puts a product into a cart.
    CART = 64


def words(text: str) -> frozenset[str]:
    """Return the words of a line as a set."""
    return frozenset(text.split())


def _pairs(text: str) -> frozenset[str]:
    return frozenset(text.split(", "))


_CHROME = words(
    "nav navbar navigation menu submenu megamenu mainmenu offcanvas topbar topnav skip skiplink skiplinks "
    "masthead footer prefooter subfooter colophon sidebar sidenav breadcrumb breadcrumbs pagination pager paging "
    "cookie cookies cookieconsent consent gdpr ccpa onetrust modal lightbox tooltip toast ads adsbygoogle advert "
    "adverts advertisement advertising share sharing social socials sharedaddy addtoany newsletter newsletters "
    "subscribe signup signin login register searchform searchbox minicart sortby signature postsignature "
    "postprofile printfooter catlinks"
)
#: Pairs of adjacent words; `message-user` names the author, while `message-userContent` is the text.
_CHROME_PAIRS = _pairs(
    "sign up, log in, sign in, sr only, back top, search form, search box, search bar, top bar, site header, "
    "global header, main menu, main nav, site nav, nav bar, side bar, side nav, skip link, skip to, pre footer, "
    "print footer, author box, author bio, about author, user info, user card, user details, message user, post "
    "profile, user signature, mini cart, cart drawer, shopping cart, sort by, language switcher, version "
    "switcher, lang switch, browser upgrade, upgrade browser, unsupported browser, table contents, "
    "read next, site notice, notification bar, announcement bar, alert bar, promo bar, access gate, widget area"
)
_ASIDE = words(
    "flyout drawer dropdown toolbar popup popover overlay ad sponsored promo banner facet facets filter filters "
    "refinement refinements sort sorting wishlist cta alert notice notices"
)
_RELATED = words(
    "related recommended recommendation recommendations recommend yarpp upsell upsells crosssell crosssells "
    "similar trending popular"
)
_RELATED_PAIRS = _pairs(
    "also like, also bought, you may, recently viewed, cross sell, up sell, more from, more articles, more "
    "stories, frequently bought, bought together, customers also, read more, blog feed, latest posts, recent "
    "posts"
)
_WORDS = {
    **dict.fromkeys(_CHROME, ElementRole.CHROME),
    **dict.fromkeys(_ASIDE, ElementRole.ASIDE),
    **dict.fromkeys(_RELATED, ElementRole.RELATED),
    **dict.fromkeys(words("comment comments disqus respond commentform commentlist"), ElementRole.COMMENTS),
    **dict.fromkeys(words("review reviews"), ElementRole.REVIEWS),
    "addtocart": ElementRole.CART,
}
_PAIRS = {
    **dict.fromkeys(_CHROME_PAIRS, ElementRole.CHROME),
    **dict.fromkeys(_RELATED_PAIRS, ElementRole.RELATED),
    **dict.fromkeys(_pairs("to cart, add cart"), ElementRole.CART),
}
#: After them, a name describes something else than its element: `has-sidebar`, `is-style-sidebar`, `category-cookies`.
_OTHER_ELEMENT_PREFIXES = words("has with no without is not js open show hide hidden toggle category tag type")
_CONTENT = words("content body text title description post entry")

#: Tags that `roles_from_tag` classifies.
ROLE_TAGS = frozenset(["nav", "dialog", "menu", "header", "footer", "aside"])
_ARIA_ROLES = dict.fromkeys(
    ["navigation", "contentinfo", "complementary", "search", "dialog", "alertdialog", "menu", "menubar", "toolbar"],
    ElementRole.CHROME | ElementRole.LANDMARK,
) | {"tablist": ElementRole.ASIDE}

_WORD_BOUNDARY = re.compile(r"(?<=[a-z])(?=[A-Z])|[-_:/]+")
#: Maximum characters of a name that are inspected; longer names are considered malicious.
_MAX_NAME_CHARS = 400


def roles_from_names(names: str) -> int:
    """Return the flags for the classes, the id, or the tag of a custom element, joined in one string."""
    return _roles_from_name(names[:_MAX_NAME_CHARS])


def roles_from_aria(role: str, *, inside: bool) -> int:
    """Return the flags of an ARIA role; `inside`: whether it is in an article, a section or the main landmark."""
    if role == "banner" and not inside:
        return ElementRole.CHROME | ElementRole.LANDMARK
    return _ARIA_ROLES.get(role, 0)


def roles_from_tag(tag: str, *, inside: bool) -> int:
    """Return the flags of an HTML tag; a header or footer inside an article belongs to the article."""
    if tag in {"nav", "dialog", "menu"} or (tag in {"header", "footer", "aside"} and not inside):
        return ElementRole.CHROME | ElementRole.LANDMARK
    return ElementRole.ASIDE if tag == "aside" else 0


# Cached: whole class attributes repeat within a page, and single names repeat between pages and sites.
@lru_cache(maxsize=4096)
def _roles_from_name(names: str) -> int:
    flags = 0
    for name in names.split():
        flags |= _roles_from_whole_name(name)
    return flags


@lru_cache(maxsize=8192)
def _roles_from_whole_name(name: str) -> int:
    parts = [part.lower() for part in _WORD_BOUNDARY.split(name) if part]
    flags = 0
    before = ""
    for place, word in enumerate(parts):
        if word in _OTHER_ELEMENT_PREFIXES:
            break
        flags |= _WORDS.get(word, 0)
        # Page builders use `widget` within many names; only a name that begins with it means a sidebar widget.
        if place == 0 and word == "widget":
            flags |= ElementRole.ASIDE
        flag = _PAIRS.get(f"{before} {word}", 0)
        flags |= flag if flag != ElementRole.CHROME or parts[-1] not in _CONTENT else 0
        before = word
    return flags
