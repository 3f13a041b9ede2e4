"""The messages of Batonbus: msgspec Structs, JSON on the wire."""
