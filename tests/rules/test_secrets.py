"""Secrets and raw reasoning: found in any text, named by place and kind, never by value."""

import base64
import hashlib
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonbus.rules.bans import find_bans
from batonbus.rules.secrets import find_banned, mask, secret_values
from batonbus_schemas import MESSAGE_LIMIT, Dispatch

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7\n-----END RSA PRIVATE KEY-----"
SECRETS = {
    "API_KEY=qv7Zr0xT1mNq8Lw2": "qv7Zr0xT1mNq8Lw2",
    "password is hunter2-Prod!": "hunter2-Prod!",
    "export DB_PASSWORD='x9-Kkkk3kk'": "x9-Kkkk3kk",
    "tvly-ABCDEF0123456789abcdef": "tvly-ABCDEF0123456789abcdef",
    "Authorization: Basic dXNlcjpwYXNz": "dXNlcjpwYXNz",
    "authorization: Bearer abcdef123456": "abcdef123456",
    f"key:\n{PEM}\n": "MIIEowIBAAKCAQEA7",
    "-----BEGIN PRIVATE KEY-----\nMIIcut0ff": "MIIcut0ff",
    "AKIAIOSFODNN7EXAMPLE": "AKIAIOSFODNN7EXAMPLE",
    "ghp_" + "a1B2" * 9: "a1B2a1B2",
    "glpat-1234567890abcdefghij": "1234567890abcdefghij",
    "sk-ant-api03-abcDEF123456789ghijklmnoPQRST": "abcDEF123456789",
    "xoxb-123456789012-abcdefghij12": "123456789012-abcdefghij12",
    "postgres://user:s3cretpw@host/db": "s3cretpw",
    "sk_live_4eC39HqLyjWDarjtT1zdp7dc": "4eC39HqLyjWDarjtT1zdp7dc",
    "SG.abcdefghij1234567890AB.abcdefghijklmnopqrstuvwxyz1234567890ABCDEFG": "abcdefghij12345678",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc123_-x": "abc123_-x",
    '{"client_secret": "abcd1234efgh"}': "abcd1234efgh",
    "AccountKey=" + "aB3+" * 21 + "aB==": "aB3+aB3+",
    "ACdeadbeef0123456789deadbeef012345": "ACdeadbeef",
    "npm //registry.npmjs.org/:_authToken=npm_abcdefghij0123456789": "abcdefghij0123456789",
    r'"{\"password\": \"Tr0ub4dor3\"}"': "Tr0ub4dor3",
    r"{\\\"api_key\\\": \\\"Tr0ub4dor3\\\"}": "Tr0ub4dor3",
    r'{"password": "Tr0u\\b4dor3\u00e9"}': "b4dor3",
    r"password=Abcd1234\nXyz789tail": "Xyz789tail",
    r'{"x": "password=Tr0ub\\nador99"}': "ador99",
    "**Password:** Tr0ub4dor3": "Tr0ub4dor3",
    "- **Password**: `Tr0ub4dor3`": "Tr0ub4dor3",
    "the token was Tr0ub4dor3": "Tr0ub4dor3",
    "password：Tr0ub4dor3": "Tr0ub4dor3",
    "пароль: Tr0ub4dor3": "Tr0ub4dor3",
    "비밀번호: Tr0ub4dor3": "Tr0ub4dor3",
    "{'password': b'Tr0ub4dor3'}": "Tr0ub4dor3",
    'os.environ["TOKEN"] = "Tr0ub4dor3"': "Tr0ub4dor3",
    "<password>Tr0ub4dor3</password>": "Tr0ub4dor3",
    "psql --password Tr0ub4dor3 -h db": "Tr0ub4dor3",
    "GH_PAT=Tr0ub4dor3 DB_PASS='x'": "Tr0ub4dor3",
    "Authorization: token Tr0ub4dor3": "Tr0ub4dor3",
    "redis://:Tr0ub4dor3@cache:6379/0": "Tr0ub4dor3",
    "amqp://ada:letmein@broker": "letmein",
    '{"auths": {"x": {"auth": "YWRhOlRyMHViNGRvcjM="}}}': "YWRhOlRyMHViNGRvcjM",
    "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY": "UZRF5UHPMWZ6BFDT",
}
HARMLESS = [
    "Work on the auth: src/modules/auth/OAuth2Provider.ts",
    'auth: oauth2ClientCredentials, "auth": "OAuth2PasswordBearer"',
    "postgres://postgres:postgres@db/app and nats://worker:worker@host",
    "9fceb02d0ae598e95dc970b74767f19372d61af8",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6f1c3a52-9d5e-4a7b-8b3c-2f4d5e6a7b8c",
    "![x](data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4)",
    "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
    "the token is required, tokens: 3,000, password: changeme",
    "src/components/IndexPage2/ViewHolderFactoryImpl.test.tsx",
    "test_a_handler_that_asks_1_other_and_its_keys_are_its_memory",
    "the key: builder-12345",
    "Read TASK-01_result.md, then works/WORK-01/PLAN.md.",
    "see https://example.org/a/b?page=2",
    "def handle(token: str, key: int) -> None:",
    "pip install batonbus==1.0.3 && make test",
    "crypto_aead_xchacha20poly1305_ietf_ABYTES, ossl_check_const_X509_ALGOR_sk_type",
    "NFCISO15693ReadMultipleBlocksConfiguration",
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
    "class ClientToken:\n    @staticmethod",
    "mypy/copytype.py,sha256=et-Q6dHUF0YPg6guLFLfFrO1efd8HtnrSyrJTlZC278,4508",
    "nats://sender:PASSWORD@127.0.0.1:4222, postgres://user:password@host/db",
    "Authorization: token required; --password-file /run/secrets/db1; --token /run/token1",
    "the password is `changeme`, the <token>word</token>",
    "NAME_PAT = r'[a-z]{1,8}'",
]


@pytest.mark.parametrize(("text", "secret"), SECRETS.items())
def test_a_secret_is_masked_wherever_it_stands(text: str, secret: str) -> None:
    for whole in (text, f"Before. {text}\nAfter.", f"> {text}"):
        clean = mask(whole)
        assert secret not in clean
        assert "[masked: " in clean


@pytest.mark.parametrize(
    "text",
    ["token-", "password", "ab-", "<think ", "api_key = ", "token=://", "key=1", "key=a1......."],
)
def test_a_text_that_begins_what_it_does_not_end_is_read_in_a_moment(text: str) -> None:
    """It took up to a minute, in which the window manager does nothing else."""
    began = time.process_time()
    find_banned(text * (MESSAGE_LIMIT // len(text)) + "/")
    assert time.process_time() - began < 4


def test_of_two_secrets_that_overlap_both_are_masked_to_their_end() -> None:
    known = ("abcdefg1,secondpart9",)
    assert "secondpart9" not in mask("token=x-abcdefg1,secondpart9 end", known)


def test_a_secret_is_masked_to_its_end_however_long_it_is() -> None:
    assert (
        mask("password: " + "x1-" * 300 + " and more")
        == "password: [masked: named secret] and more"
    )


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert mask(text) == text


def test_known_values_of_the_environment_are_found_by_value() -> None:
    environment = {
        "MY_API_KEY": "plainwordlong",
        "DB_PASSWORD": "postgres",
        "HOME": "/home/x",
        "X_TOKEN": "short",
    }
    known = secret_values({**environment, "PWD": "/home/x/project"})
    assert known == {"plainwordlong"}
    assert (
        mask("it says plainwordlong here", known)
        == "it says [masked: value of the environment] here"
    )


@pytest.mark.parametrize(
    "name",
    [
        *("GH_PAT", "PGPASSWORD", "SSHPASS", "DB_PASS", "API_KEY2", "OPENAI_API_KEY_PROD"),
        *("SECRET_KEY_BASE", "SENTRY_DSN", "SIGNING_KEY", "NPM_TOKEN", "db_password"),
    ],
)
def test_a_variable_that_is_named_as_a_secret_is_known_by_its_value(name: str) -> None:
    assert secret_values({name: "x9-Kkkk3kkqq"}) == {"x9-Kkkk3kkqq"}


@pytest.mark.parametrize(
    "name", ["PATH", "OLDPWD", "PWD", "KEYBOARD", "HOME", "TOKEN_LIMIT", "PASSWORD_STORE_DIR"]
)
def test_a_variable_of_another_name_is_no_secret(name: str) -> None:
    assert secret_values({name: "/home/x/projects/9"}) == frozenset()


@pytest.mark.parametrize(
    "token",
    [
        "sk-or-v1-" + "0a1b2c3d" * 8,
        "sk-" + "0a1b2c3d" * 4,
        "dop_v1_" + "0a1b2c3d" * 8,
        "dapi" + "0a1b2c3d" * 4,
        "hf_" + "abcdefgh1j" * 3,
        "hvs.CAESIabcdefgh1jklmnopqrs",
        "AGE-SECRET-KEY-1QQPZRY9X8GF2TVDW0S3JN54KHCE6",
    ],
)
def test_a_token_is_known_by_its_issuer(token: str) -> None:
    assert token not in mask(f"use {token} for it")


@pytest.mark.parametrize("tag", ["think", "thinking", "analysis", "Reasoning"])
def test_a_block_of_reasoning_is_taken_out(tag: str) -> None:
    assert mask(f"Done.<{tag}>hm,\nwell</{tag}> All of it.") == "Done. All of it."
    assert mask(f"Done.\n<{tag}>cut off") == "Done.\n"
    assert mask(f"hm, well\n</{tag}>\nDone.") == "\nDone."
    assert mask(f"<{tag}>all of it</{tag}>") == "[masked: reasoning]"


@given(st.text(max_size=200))
def test_no_text_makes_it_fail_and_masking_twice_is_masking_once(text: str) -> None:
    once = mask(text)
    assert mask(once) == once
    spans = [(it.start, it.end) for it in find_banned(text)]
    assert spans == sorted(spans)


@given(st.text(max_size=40))
def test_nothing_before_a_secret_hides_it(before: str) -> None:
    assert "hunter2-Prod9" not in mask(f"{before}\npassword=hunter2-Prod9 İ")


@pytest.mark.parametrize("letters", ["İ", "İİİİİİİİİİ", "ẞ", "Σ"])
def test_a_letter_that_grows_in_small_letters_moves_nothing(letters: str) -> None:
    text = f"{letters}stanbul: deploy with password=hunter2secret9."
    assert mask(text) == f"{letters}stanbul: deploy with password=[masked: named secret]."


@pytest.mark.parametrize(
    "text",
    [
        "It now skips <thinking> blocks.\nAll 42 tests pass. NOT done: the printer crashes.",
        "see the <reasoning-models> page. All tests pass.",
        "Add an `<analysis>` element to the schema, and read </think> tags.",
        "Use <analysis> for it.",
    ],
)
def test_a_sentence_about_tags_is_no_reasoning(text: str) -> None:
    assert mask(text) == text


@pytest.mark.parametrize("size", [300, 1_000, 20_000])
def test_a_picture_in_lines_is_no_secret(size: int) -> None:
    for seed in range(20):
        picture = base64.encodebytes(random.Random(seed).randbytes(size)).decode()
        assert find_banned(f"![x]\n{picture}\nThe end.") == []
        assert find_bans(Dispatch(brief="Look.", ref_cache={"picture": picture})) == []


@pytest.mark.parametrize("name", ["sha1", "sha256", "sha384", "sha512"])
def test_a_checksum_is_no_secret(name: str) -> None:
    for seed in range(50):
        digest = hashlib.new(name, bytes([seed])).digest()
        told = base64.b64encode(digest).decode()
        lines = [f'"integrity": "{name}-{told}"', f"{name}-{told}", f"h1:{told}", f"SHA256:{told}"]
        assert find_banned("\n".join(lines)) == []


@pytest.mark.parametrize(
    "text",
    [
        "msg_01XFDUDYJgAACzvnptvVoYEL",
        "toolu_01A09q90qw90lq917835lq9",
        "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
        "call_62136354hZ9kQ2mT7LwXbC3d",
        "test_that_UserProfile2_is_updated_when_It_Changes",
        "claude-3-5-sonnet-20241022",
    ],
)
def test_the_name_of_a_thing_is_no_secret(text: str) -> None:
    assert find_banned(f"see {text} for it") == []


def test_each_block_of_reasoning_is_taken_out_whatever_stands_beside_it() -> None:
    text = "a <think>one</think> b\n<analysis>two</analysis> c <think>d\n<think>cut off"
    assert mask(text) == "a  b\n c <think>d\n"


def test_tags_again_and_again_are_looked_through_quickly() -> None:
    for tags in ("<think>", "x<think>\n", "</think>", "\n</think> x", "<think x"):
        began = time.process_time()
        find_banned("a " + tags * (MESSAGE_LIMIT // len(tags)))
        assert time.process_time() - began < 2
