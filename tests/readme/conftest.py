"""The snippets are run as a reader would run them, in a folder of their own."""

collect_ignore = ["snippets"]
