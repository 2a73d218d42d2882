"""Browser sessions: a Chromium of its own for each, that its user drives from outside.

cdp             what a client of the browser's protocol can do
attached        a page that a client is attached to: commands, dialogs, loads
pages           which pages there are, and which is in front
snapshot        a page as text, with names to act on
eyes            what can be read of a page
hands           what can be done on it: go, click, write
keys            keys by their names
in_page         what is asked of an element inside its page
code/           the room that runs a user's code
"""
