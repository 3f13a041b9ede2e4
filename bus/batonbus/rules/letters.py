"""Letters of texts in which places are counted."""


def lowered(text: str) -> str:
    """The text in small letters, with every place what it was: the one letter that would become two
    is written as another one before."""
    return text.replace("İ", "I").lower()
