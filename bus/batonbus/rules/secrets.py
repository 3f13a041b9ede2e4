"""No provider secret and no raw reasoning in anything that travels (seed 003).

Secrets are found by the detectors of detect-secrets, by the name beside a value, by the look of a
random token, and by known values of the environment; reasoning by its blocks and items. What is
found is named by place and kind, never by value. Git hashes, UUIDs and pictures are none.
"""

import functools
import importlib
import math
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from batonbus.rules.letters import lowered
from batonbus.rules.reasoning import find_reasoning

SHORTEST = 8
"""Characters of the shortest value of the environment that is looked for."""

SURE = 12
"""Characters from which on such a value may be plain letters."""

_Rows = Mapping[str, tuple[str, tuple[str, ...]]]

_TOKENS: _Rows = {
    "artifactory": ("ArtifactoryDetector", ("AKC", "AP")),
    "aws": ("AWSKeyDetector", ("A3T", "ABIA", "ACCA", "AKIA", "ASIA")),
    "azure_storage_key": ("AzureStorageKeyDetector", ("accountkey",)),
    "basic_auth": ("BasicAuthDetector", ("://",)),
    "discord": ("DiscordBotTokenDetector", ("M", "N", "O")),
    "github_token": ("GitHubTokenDetector", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    "gitlab_token": ("GitLabTokenDetector", ("gl", "GR1348941")),
    "jwt": ("JwtTokenDetector", ("eyj",)),
    "mailchimp": ("MailchimpDetector", ("-us",)),
    "openai": ("OpenAIDetector", ("sk-",)),
    "pypi_token": ("PypiTokenDetector", ("pypi-",)),
    "sendgrid": ("SendGridDetector", ("SG.",)),
    "slack": ("SlackDetector", ("xox", "hooks.slack.com")),
    "square_oauth": ("SquareOAuthDetector", ("sq0csp",)),
    "stripe": ("StripeDetector", ("k_live_",)),
    "telegram_token": ("TelegramBotTokenDetector", (":aa",)),
    "twilio": ("TwilioKeyDetector", ("AC", "SK")),
}
"""Modules of detect-secrets' plugins, each with its class and what a text must hold (in small
letters: of any case) before its expressions are tried: the look-up costs a hundredth of them. What
these look for is one word. Those that take any hexadecimal or base64 text for a secret are left
out: git hashes and pictures."""

_ASSIGNED: _Rows = {
    "aws": ("AWSKeyDetector", ("aws",)),
    "cloudant": ("CloudantDetector", ("clou",)),
    "ibm_cloud_iam": ("IbmCloudIamDetector", ("ibm", "bluemix")),
    "ibm_cos_hmac": ("IbmCosHmacDetector", ("secret",)),
    "npm": ("NpmDetector", ("_authtoken",)),
    "softlayer": ("SoftlayerDetector", ("softlayer",)),
}
"""Those that look for a name and its value, with spaces between them."""

_NAME = (
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|client[_-]?secret|credentials?|auth[_-]?key)"
)
_NAMES = (
    *("password", "passwd", "passphrase", "pwd", "secret", "token", "key", "credential"),
    *("passwort", "mot de passe", "contraseña", "парол", "비밀번호", "パスワード", "密码"),
)
_QUALIFIES_KEY = re.compile(r"(?i)(?:api|access|private|auth|secret)[_-]?$")
_VALUE = r"(?:[^\s\"',;<>(){}\[\]|$`\\]|\\\\|\\(?![\"'nrt\\]))"
_QUOTE = r"(?:[bruf]{1,2}(?=\\{0,3}[\"']))?\\{0,3}[\"'`“]?"
_GIVEN = re.compile(
    r"(?i)[^\W\d_]{0,32}(?:[_-][\w-]{0,64})?(?:\\{0,3}[\"'`*\])]){0,4}\s{0,64}"
    rf"(?:(?:=>|:=|=|[:：＝]|\b(?:is|was)\b)\s{{0,64}}(?:[*_]{{1,3}}\s?)?{_QUOTE}"
    rf"(?P<value>{_VALUE}{{8,256}})(?<!\.)|>(?P<tagged>{_VALUE}{{8,256}})</)"
)
"""What follows a name, where it is given a value: in words, in code, in JSON within JSON, in
Markdown, as the text of an element. Bounded, for a name may stand in a text thousands
of times: without bounds 60 KB took half a minute, and the window manager looks at every message."""

_VALUE_REST = re.compile(rf"(?:{_VALUE}|\\(?![\"']))*(?<!\.)")

_SECRET_KEY = re.compile(rf"(?i)(?:^|[_-]){_NAME}$")
_SECRET_VARIABLE = re.compile(
    rf"(?i)(?:(?:^|[_-])(?:{_NAME}|pat|pass|dsn|key_base)|_key|passw(?:or)?d|sshpass)"
    r"(?:_?\d+|_(?:prod|live|test|dev|staging|backup))?$"
)
_FLAG = re.compile(r"(?<![\w-])--?[\w-]{0,32}\Z")
_FLAGGED = re.compile(rf"(?i)\s{{1,4}}[\"']?(?P<value>{_VALUE}{{8,256}})")
"""A name that is an option of a command, and its value as the next word."""

_VARIABLE = re.compile(rf"(?i)(?<=\w_)(?:pass|pat)={_QUOTE}(?P<value>{_VALUE}{{8,256}})")
_AUTH = re.compile(
    r"(?i)\b_?auth\\{0,3}[\"']?\s?[:=]\s?\\{0,3}[\"']?"
    r"(?P<value>[a-z0-9+/]{16,512}={0,2})(?![\w+/=])"
)
"""What Docker and npm keep: a name and its password in base64."""

_URL = re.compile(r"://(?P<user>[^\s:/@\"']{0,64}):(?P<value>[^\s:/@\"'<>{}$*%]{3,128})@")
_PLACEHOLDER = re.compile(
    r"(?i)[x.]+|pass(?:wd|word|phrase)?|pw|pwd|secret|token|changeme|guest|your\S*|my\S*"
)
_HEADER = re.compile(
    r"(?i)\bauthorization\\{0,3}[\"']?\s*[:=,]\s*\\{0,3}[\"']?"
    r"(?:(?:basic|bearer)\s+|(?:token|apikey|digest|negotiate)\s+(?=\S*\d))(?P<value>[^\s\[]\S{5,})"
)
_PEM = re.compile(
    r"(?P<value>-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)|PuTTY-User-Key-File-\d.*\Z)",
    re.DOTALL,
)
_NAMED_THINGS = (
    r"(?!(?:msg|toolu|srvtoolu|call|run|req|resp|thread|asst|step|item|chatcmpl|test)[-_])"
)
"""What the interfaces of models, and tests, are named by."""

_PREFIXED = re.compile(
    rf"(?<![\w/+.-])(?<!sha\d{{3}}=)(?!sha\d){_NAMED_THINGS}"
    r"(?P<value>[a-z]{2,8}[-_][A-Za-z0-9_-]{20,})(?![\w/+-])"
)
_RANDOM = re.compile(
    # No checksum (SRI, go.sum, ssh), and no public key of ssh.
    rf"(?<![\w/+=.-])(?<!h1:)(?<!SHA256:)(?!sha\d{{1,3}}[=-]|AAAA[BC]3){_NAMED_THINGS}"
    r"(?P<value>[A-Za-z0-9_+=-]{32,128})(?![\w/+=-])"
)
_ISSUED = re.compile(
    r"(?<![\w-])(?P<value>(?:sk-or-v1-|dop_v1_|doo_v1_|dapi|shpat_|shpss_|sbp_|r8_|hf_|npm_|glsa_|pul-"
    r"|hvs\.|dp\.pt\.|AGE-SECRET-KEY-1|ya29\.|PMAK-|xapp-)[A-Za-z0-9_-]{20,}|sk-[0-9a-f]{32,64}"
    r"|S[UAO][A-Z2-7]{56})(?![\w-])"
)
"""Tokens of issuers that detect-secrets does not know, by what they begin with."""

_PICTURE = re.compile(r"(?m)(?:^[ \t>]*[A-Za-z0-9+/]{60,80}\r?\n){2,}^[ \t>]*[A-Za-z0-9+/]+={0,2}")
"""Base64 in lines, as of a picture or a certificate."""
_DIGIT = re.compile(r"\d")
_REST = re.compile(r"(?:[\w+/=-]|\.(?=\w))*")
_DECORATOR = re.compile(r"@[A-Za-z_.]+")
_PARTED = re.compile(r"[_-]")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_PREFIX, _NO_PREFIX = 3.5, 4.5
"""Bits of entropy of a letter, at least, of a token that begins with a name, and of any other."""

_HEX = re.compile(r"[0-9a-fA-F-]+")


class Banned(Struct, frozen=True):
    """Something that must not travel: what it is, and where in its text it stands."""

    kind: str
    start: int
    end: int


def find_banned(text: str, known: Collection[str] = ()) -> list[Banned]:
    """Secrets and reasoning in a text, in their order, without overlaps. `known` are secret values
    of the environment."""
    found = [Banned("reasoning", *it) for it in find_reasoning(text)]
    found += _secrets(text, known)
    return without_overlaps(found)


def without_overlaps(found: list[Banned]) -> list[Banned]:
    """In the order of the text; of two that overlap, the one that begins first, or is longer."""
    found.sort(key=lambda it: (it.start, -it.end))
    apart: list[Banned] = []
    for it in found:
        if not apart or it.start >= apart[-1].end:
            apart.append(it)
        elif it.end > apart[-1].end:
            apart[-1] = replace(apart[-1], end=it.end)
    return apart


def _secrets(text: str, known: Collection[str]) -> Iterator[Banned]:
    for value in known:
        at = text.find(value)
        while at >= 0:
            yield Banned("value of the environment", at, at + len(value))
            at = text.find(value, at + len(value))
    lower = lowered(text)
    if "private key" in lower or "putty" in lower:
        yield from _matches("private key", _PEM, text)
    if "authorization" in lower:
        yield from _matches("authorization header", _HEADER, text)
    yield from _named(text, lower)
    if "_pa" in lower:
        yield from _matches("named secret", _VARIABLE, text, _looks_chosen)
    if "://" in text and "@" in text:
        yield from _passwords_of_urls(text)
    if "auth" in lower:
        yield from _matches("named secret", _AUTH, text, _is_login)
    # Whatever else is a secret holds a word with a digit; a text without one is most of all texts.
    words = "\n".join(it for it in text.split() if len(it) >= SHORTEST and _DIGIT.search(it))
    if words:
        yield from _detected(text, lower, words)


def _detected(text: str, lower: str, words: str) -> Iterator[Banned]:
    """What the detectors find, and random tokens. `words` are those of the text that may be
    secrets: few, and so looked through first."""
    tokens, any_case, assigned = _hints()
    lower_words = words.lower()
    hit = {it.kind: it for hint, it in tokens if hint in words}
    hit |= {it.kind: it for hint, it in any_case if hint in lower_words}
    for detector in hit.values():
        if any(detector.find(words)):
            yield from detector.find(text)
    for detector in {it.kind: it for hint, it in assigned if hint in lower}.values():
        yield from detector.find(text)
    if any(_random_tokens(words)):
        pictures = [it.span() for it in _PICTURE.finditer(text)]
        for it in _random_tokens(text):
            if not any(start <= it.start < end for start, end in pictures):
                yield it


def _random_tokens(text: str) -> Iterator[Banned]:
    yield from _matches("issued token", _ISSUED, text, _DIGIT.search)
    for pattern, least in ((_PREFIXED, _PREFIX), (_RANDOM, _NO_PREFIX)):
        yield from _matches("random token", pattern, text, partial(_looks_random, least=least))


def _named(text: str, lower: str) -> Iterator[Banned]:
    for name in _NAMES:
        at = lower.find(name)
        while at >= 0:
            end = at + len(name)
            is_name = name != "key" or _QUALIFIES_KEY.search(text, max(at - 9, 0), at)
            span = _given(text, at, end) if is_name else None
            if span and _looks_chosen(text[slice(*span)]):
                rest = _VALUE_REST.match(text, span[1])
                end = rest.end() if rest else span[1]
                yield Banned("named secret", span[0], end)
            at = lower.find(name, end)


def _given(text: str, at: int, end: int) -> tuple[int, int] | None:
    """Where the value stands that the name between two places is given."""
    if match := _GIVEN.match(text, end):
        return match.span("tagged" if match["value"] is None else "value")
    # A path is where a secret is kept.
    match = _FLAGGED.match(text, end)
    if match and "/" not in match["value"] and _FLAG.search(text, max(at - 36, 0), at):
        return match.span("value")
    return None


def _is_login(value: str) -> bool:
    """Whether it is `name:password` in base64."""
    try:
        name, colon, password = b64decode(value + "=" * (-len(value) % 4)).decode().partition(":")
    except ValueError:
        return False
    return bool(name and colon and password) and (name + password).isprintable()


def _passwords_of_urls(text: str) -> Iterator[Banned]:
    for match in _URL.finditer(text):
        value = match["value"]
        is_default = value == match["user"] or value.isupper()
        if not is_default and not _PLACEHOLDER.fullmatch(value):
            yield Banned("Basic Auth Credentials", *match.span("value"))


def _matches(
    kind: str, pattern: re.Pattern[str], text: str, counts: Callable[[str], object] | None = None
) -> Iterator[Banned]:
    """The values that an expression finds: all, or those that count."""
    for match in pattern.finditer(text):
        if counts is None or counts(match["value"]):
            yield Banned(kind, *match.span("value"))


class _Detector(Struct, frozen=True):
    """One of detect-secrets' detectors: its expressions."""

    kind: str
    patterns: tuple[re.Pattern[str], ...]

    def find(self, text: str) -> Iterator[Banned]:
        """Its matches; a word without a digit is none."""
        for pattern in self.patterns:
            for match in pattern.finditer(text):
                group = 1 if pattern.groups and len(match.group(1) or "") > 5 else 0
                if _DIGIT.search(match.group(group)):
                    # Some expressions end before the secret does.
                    rest = _REST.match(text, match.end(group))
                    yield Banned(self.kind, match.start(group), rest.end() if rest else 0)


_Hints = tuple[tuple[str, _Detector], ...]


@functools.cache
def _hints() -> tuple[_Hints, _Hints, _Hints]:
    """What a text must hold for each detector: its words as they stand, its words in small letters,
    the whole text in small letters. Loaded when first needed: it takes 0.1 s."""
    tokens = _load(_TOKENS)
    exact = tuple(it for it in tokens if not it[0].islower())
    any_case = tuple(it for it in tokens if it[0].islower())
    return exact, any_case, _load(_ASSIGNED)


def _load(rows: _Rows) -> _Hints:
    hints: list[tuple[str, _Detector]] = []
    for module, (name, words) in rows.items():
        plugin: Any = importlib.import_module(f"detect_secrets.plugins.{module}")
        found = getattr(plugin, name)()
        detector = _Detector(str(found.secret_type), tuple(found.denylist))
        hints += [(word, detector) for word in words]
    return tuple(hints)


def _looks_chosen(value: str) -> bool:
    """Letters with digits or signs among them: no word, no number, no name in a program."""
    letters = any(map(str.isalpha, value))
    digits = any(map(str.isdigit, value))
    signs = any(it in "!@#%^&*+~?" for it in value) and not _DECORATOR.fullmatch(value)
    return letters and (digits or signs) and "://" not in value


def _looks_random(value: str, least: float) -> bool:
    """One of its parts has digits, capitals and small letters; words with dashes between them, as
    in a name of a program, have not. A long one without a prefix (`least` says which) changes
    between them more often than a name in CamelCase does."""
    if _HEX.fullmatch(value) or not any(map(_is_mixed, _PARTED.split(value))):
        return False
    counts = Counter(value)
    entropy = -sum(it / len(value) * math.log2(it / len(value)) for it in counts.values())
    is_worded = least == _NO_PREFIX and len(value) >= 4 * len(_WORD.findall(value))
    return entropy >= least and not is_worded


def _is_mixed(part: str) -> bool:
    kinds = (str.isupper, str.islower, str.isdigit)
    return all(any(map(kind, part)) for kind in kinds)


def mask(text: str, known: Collection[str] = ()) -> str:
    """The text with `[masked: kind]` in place of each secret, and without reasoning."""
    parts: list[str] = []
    at = 0
    for it in find_banned(text, known):
        parts.append(text[at : it.start])
        if it.kind != "reasoning":
            parts.append(f"[masked: {it.kind}]")
        at = it.end
    if not parts:
        return text
    clean = "".join([*parts, text[at:]])
    return clean if clean.strip() else "[masked: reasoning]"


@functools.lru_cache(maxsize=4096)
def is_secret_key(key: str) -> bool:
    """Whether a member of this name is a secret."""
    return _SECRET_KEY.search(key) is not None


def secret_values(environment: Mapping[str, str]) -> frozenset[str]:
    """The values of an environment whose names say that they are secrets. A shell's `PWD` is the
    folder it is in; a short word such as `postgres` stands in many a text, and is left out."""
    return frozenset(
        value
        for name, value in environment.items()
        if (len(value) >= SURE or (len(value) >= SHORTEST and _looks_chosen(value)))
        and name != "PWD"
        and _SECRET_VARIABLE.search(name)
    )
