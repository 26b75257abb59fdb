"""Fingerprints of a program's text, by which copies are found: winnowed runs of normalised tokens.

Comments, docstrings, layout, names of variables and values of texts do not count. Source: Schleimer, Wilkerson and
Aiken, "Winnowing: Local Algorithms for Document Fingerprinting" (SIGMOD 2003), the method of MOSS. Runs in `reader`.
"""

import io
import keyword
import tokenize
import zlib

GRAM = 8  # tokens that must be equal in a row to count
_WINDOW = 4  # of this many neighbouring runs of tokens one is kept
_MOST = 5_000  # fingerprints of one answer
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def fingerprints(source: str) -> frozenset[int]:
    """The fingerprints of a Python text, or of as much as can be read of a text that is not Python."""
    tokens = list[str]()
    try:
        before = "\n"
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            first = before in ("\n", ":")  # of a statement: a text there is a docstring
            if token.type == tokenize.STRING:
                tokens += [] if first else ["text"]
            elif token.type == tokenize.NAME and before != "." and not keyword.iskeyword(token.string):
                tokens.append("name")
            elif token.type not in _LAYOUT:
                tokens.append(token.string)
            if token.type not in (tokenize.NL, tokenize.COMMENT, tokenize.INDENT):
                before = "\n" if token.type in (tokenize.NEWLINE, tokenize.DEDENT) else token.string
    except (tokenize.TokenError, SyntaxError, UnicodeEncodeError):  # the last one since Python 3.12
        pass
    grams = [zlib.crc32("\0".join(tokens[k : k + GRAM]).encode()) for k in range(len(tokens) - GRAM + 1)]
    return frozenset([min(grams[k : k + _WINDOW]) for k in range(len(grams))][:_MOST])
