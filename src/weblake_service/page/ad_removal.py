"""Removes advertisements and consent dialogs, recognised by class names and ids.

A page that is fetched over HTTP loads no advertisements; what can be blocked is in its source: ad slots, frames that
point at an ad server, and the consent dialog. The list is short and exact, because `blockAds` is on by default. An
element that contains the main landmark or half of the page's text is kept.
"""

from __future__ import annotations

import re

from selectolax.lexbor import LexborHTMLParser, LexborNode

#: Slots and frames of the large ad servers, and the class names and ids of consent dialogs.
KNOWN_SELECTORS = ", ".join(
    [
        "ins.adsbygoogle",
        "amp-ad",
        "amp-embed[type]",
        "amp-consent",
        "[id^=google_ads_]",
        "[id^=div-gpt-ad]",
        "[id^=taboola-]",
        "[class*=OUTBRAIN]",
        "[data-ad-slot]",
        "[data-ad-client]",
        "iframe[src*='doubleclick.net']",
        "iframe[src*='googlesyndication.com']",
        "iframe[src*='amazon-adsystem.com']",
        "#onetrust-consent-sdk",
        "#onetrust-banner-sdk",
        "#CybotCookiebotDialog",
        "#usercentrics-root",
        "#didomi-host",
        "#qc-cmp2-container",
        "#cookie-law-info-bar",
        "[id^=sp_message_container]",
        ".truste_overlay",
        ".osano-cm-window",
        ".cky-consent-container",
        ".cmplz-cookiebanner",
    ]
)
_CANDIDATES = f"[class], [id], {KNOWN_SELECTORS}"
_AD_WORDS = "ad ads advert adverts advertisement advertisements advertising sponsored"
#: Class names and ids of ad containers: `ad-slot`, `adBanner`, `ads__container`.
_BOX_WORDS = "banner block box container frame holder leaderboard mpu rectangle slot unit wrapper wrap"
_CONSENT_WORDS = "cookie cookies consent gdpr ccpa cookieconsent"
_POPUP_WORDS = "banner bar dialog dialogue message modal notice notification overlay popup prompt toast"
_WHOLE_WORDS = "cookiebanner cookiebar cookieconsent cookienotice cookiepopup adslot adbanner advertisement"
_AD_NAMES, _BOX_NAMES, _CONSENT_NAMES, _POPUP_NAMES, _WHOLE_NAMES = (
    frozenset(words.split()) for words in (_AD_WORDS, _BOX_WORDS, _CONSENT_WORDS, _POPUP_WORDS, _WHOLE_WORDS)
)
_WORD_BOUNDARY = re.compile(r"(?<=[a-z])(?=[A-Z])|[\s_-]+")
_STRUCTURAL_TAGS = frozenset(["html", "head", "body", "main", "article"])
_MAIN_SELECTOR = "main, article, [role=main i]"
_MAX_SHARE = 0.5


def drop_ads(tree: LexborHTMLParser) -> None:
    """Remove advertisements and consent dialogs from the tree."""
    whole = len(tree.body.text()) if tree.body is not None else 0
    known = {node.mem_id for node in tree.css(KNOWN_SELECTORS)}
    found = [node for node in tree.css(_CANDIDATES) if node.mem_id in known or _is_named_as_ad(node)]
    # Inner elements first: an element must not be inspected after its parent was removed.
    for node in reversed([node for node in found if not _is_content(node, whole)]):
        node.decompose()


def _is_named_as_ad(node: LexborNode) -> bool:
    attributes = node.attributes
    names = [*(attributes.get("class") or "").split(), attributes.get("id") or ""]
    return any(_is_blocked(name) for name in names)


def _is_blocked(name: str) -> bool:
    words = {word.lower() for word in _WORD_BOUNDARY.split(name)}
    if not _WHOLE_NAMES.isdisjoint(words):
        return True
    is_ad = not _AD_NAMES.isdisjoint(words) and not _BOX_NAMES.isdisjoint(words)
    return is_ad or (not _CONSENT_NAMES.isdisjoint(words) and not _POPUP_NAMES.isdisjoint(words))


def _is_content(node: LexborNode, whole: int) -> bool:
    if node.tag in _STRUCTURAL_TAGS or node.css_first(_MAIN_SELECTOR) is not None:
        return True
    return len(node.text()) > whole * _MAX_SHARE
