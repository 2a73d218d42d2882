"""Browser sessions: a Chromium of its own for each, that its user drives from outside.

cdp             what a client of the browser's protocol can do
live_messages   what a viewer may say, checked and bounded, and the browser's command for it
live_tabs       which of the browser's pages is followed
live_pictures   the pictures on their way to the viewer, of which there is at most one
live_view       what a viewer sees, live, and what an interactive one does there
live_page       the page that shows it: view/live.html, its script and its style
"""
