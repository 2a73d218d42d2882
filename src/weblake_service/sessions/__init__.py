"""Browser sessions: a Chromium of its own for each, that its user drives from outside.

chromium_process  one Chromium, held by two pipes
cdp, multiplexer  its protocol, for as many clients as there are
external_client  a client that comes over a websocket, and what it may say
session         one live session: browser, way out, clients, words
rows, sessions  all of them, in the database and in this process: begun, kept, ended, billed
steering        Playwright at one: profiles, and the page of a scrape brought back
scraped_page, interact   the browser of a scrape
prompted        a language model that drives one
attached_page   a page that a client is attached to: commands, dialogs, loads
pages           which pages there are, and which is in front
snapshot        a page as text, with names to act on
element_lookup, page_actions   what can be read of a page, and done on it: go, click, write
keys            keys by their names
in_page         what is asked of an element inside its page
live_messages   what a viewer may say, checked and bounded, and the browser's command for it
live_tabs       which of the browser's pages is followed
live_pictures   the pictures on their way to the viewer, of which there is at most one
live_view       what a viewer sees, live, and what an interactive one does there
live_page       the page that shows it: view/live.html, its script and its style
code/           the room that runs a user's code
"""
