"""The definitions: every module and every defs.yaml in this folder is loaded."""
