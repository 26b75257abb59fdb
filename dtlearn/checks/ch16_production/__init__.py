"""Checks of chapter 16."""

# Codes that only this chapter's exercises use.
MEANINGS = {
    "DTL-VALUE-FAULT": "another fault than that of the program",
    "DTL-VALUE-SHOWS": "the line on which a fault shows, not the one in which it arises",
    "DTL-VALUE-VICTIM": "a rank that only suffers from a fault",
}
