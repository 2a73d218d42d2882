"""A load from its request to its commit: start a job once, download it, account for every URL, publish, recover.

The modules in order of use: load_request, intents, starts, download, staging, accounting, completeness, publishing,
recovery, retirement. `load` runs the whole sequence.
"""
