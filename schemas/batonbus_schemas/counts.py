"""Numbers as people read them."""


def counted(number: int, noun: str) -> str:
    """A number with its noun, which takes an s: `1 event`, `2,000 more events`."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"
