"""The room that runs a user's code against a session's browser, in processes that end with the call.

keeper          the process around the code: its limits, and the end of everything that it started
languages       what runs node, python and bash, and what lies around it: `agent-browser` on PATH
runner          one execution, from the code to what it printed, returned and failed with
guard           the page in front, and an end to loops that the code left in pages
output          what a process prints, kept up to a size
harness         (.mjs, .py) what stands around the code inside node and python
connection      a client of the browser's protocol, over a WebSocket
browser_command the command `agent-browser`, which is started by start_command
command_words   the words that it understands
refs_file       what it knows from one call to the next
"""
