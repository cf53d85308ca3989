# Goal of this file: a password that nobody is to see, in each form in which a server may send it back.

import re

SECRET = "correct-horse%battery é"
IN_URL = "correct-horse%25battery%20%C3%A9"
LOGIN = f"alice:{SECRET}"

ECHOES = {
    "plain": SECRET, "percent": "".join(f"%{byte:02x}" for byte in SECRET.encode()),
    "hexadecimal": "".join(f"\\x{byte:02x}" for byte in SECRET.encode()),
    "cut": SECRET[:12], "inside": f"AUTH {SECRET}!",
}
LEAKS = ("correct-h", "battery", ECHOES["percent"][:15], ECHOES["hexadecimal"][:20], "c\\u006f", "\\u0063o")


def assert_kept(*texts):
    for text in texts:
        for leak in LEAKS:
            assert leak not in text, text


def escaped(text):
    """The same string in JSON, each character as \\uXXXX."""
    return '"' + "".join(f"\\u{ord(c):04x}" for c in text) + '"'


def text_of(shown):
    return re.sub(rb"\\x(..)", lambda m: bytes.fromhex(m[1].decode()), shown.encode()).decode(errors="replace")
