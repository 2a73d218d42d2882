"""Hosts of advertisements and trackers that `blockAds` blocks.

The list is short and has the most common hosts; each includes its subdomains.
"""

from __future__ import annotations

_HOST_LIST = """
    2mdn.net 33across.com 3lift.com ad.gt adform.net admixer.net adnxs.com adroll.com adsafeprotected.com
    adservice.google.com adsrvr.org adtechus.com adthrive.com advertising.com agkn.com amazon-adsystem.com
    amplitude.com app-measurement.com bidswitch.net bluekai.com bounceexchange.com casalemedia.com chartbeat.com
    chartbeat.net clarity.ms contextweb.com criteo.com criteo.net crwdcntrl.net demdex.net doubleclick.net
    doubleverify.com everesttech.net exelator.com exponential.com fullstory.com google-analytics.com
    googleadservices.com googlesyndication.com googletagmanager.com googletagservices.com gumgum.com hotjar.com
    hotjar.io id5-sync.com imrworldwide.com indexww.com krxd.net liadm.com lijit.com mathtag.com media.net
    mediavine.com mgid.com mixpanel.com moatads.com mookie1.com newrelic.com nr-data.net omtrdc.net onetag-sys.com
    openx.net outbrain.com outbrainimg.com popads.net popcash.net propellerads.com pubmatic.com quantcount.com
    quantserve.com rfihub.com rlcdn.com rubiconproject.com scorecardresearch.com sharethis.com sharethrough.com
    simpli.fi smaato.net smartadserver.com sovrn.com spotxchange.com taboola.com tapad.com teads.tv
    trafficjunky.net tremorhub.com tribalfusion.com turn.com undertone.com yieldmo.com zedo.com zergnet.com
"""
_HOSTS = frozenset(_HOST_LIST.split())


def is_ad_host(host: str) -> bool:
    """Return whether the host, or one of its parent domains, is on the list."""
    labels = host.lower().rstrip(".").split(".")
    return any(".".join(labels[at:]) in _HOSTS for at in range(len(labels) - 1))
