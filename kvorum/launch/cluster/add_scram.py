"""SCRAM credentials of a new cluster (KIP-900): `--add-scram`, in Kafka's form.

`SCRAM-SHA-512=[name=alice,password=...]`, with `iterations`, `salt` and `saltedpassword` (both in
base64) as in Kafka, and `password-file` of Kvorum's own.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import random
from collections.abc import Callable, Sequence

from kvorum.broker.sasl.core.scram import HASHES, MECHANISMS, derived_keys
from kvorum.metadata.controller.decide.scram import ITERATIONS_MAX, ITERATIONS_MIN
from kvorum.metadata.image.records import ScramCredential
from kvorum.runtime.errors import ConfigError

SALT_BYTES = 24
_KEYS = ("name", "password", "password-file", "saltedpassword", "salt", "iterations")
_OF_PASSWORD = ("password", "password-file", "saltedpassword")


def parse_add_scram(
    texts: Sequence[str], *, ask: Callable[[str], str], rng: random.Random
) -> tuple[ScramCredential, ...]:
    """The credentials of all `--add-scram`. Raises ConfigError, which shows no password.

    ask: asks for the password of a user for whom the text has none.
    rng: makes the salts, so it must be unpredictable.
    """
    found: dict[tuple[str, int], ScramCredential] = {}
    for text in texts:
        credential = _credential(text, ask, rng)
        key = (credential.user, credential.mechanism)
        if key in found:
            raise ConfigError(f"--add-scram gives {credential.user} two credentials of a mechanism")
        found[key] = credential
    return tuple(found.values())


def has_password(text: str) -> bool:
    """True if the text itself has a password, which other users of the machine could read."""
    return any(part.strip().startswith(("password=", "saltedpassword=")) for part in _parts(text))


def _parts(text: str) -> list[str]:
    """The text in the brackets, split at commas."""
    return text.partition("=")[2].strip().removeprefix("[").removesuffix("]").split(",")


def _credential(text: str, ask: Callable[[str], str], rng: random.Random) -> ScramCredential:
    mechanism, separator, rest = text.strip().partition("=")
    rest = rest.strip()
    if not separator or mechanism not in MECHANISMS:
        raise ConfigError(
            f"--add-scram must begin with {'= or '.join(MECHANISMS)}=, and has the form "
            "SCRAM-SHA-512=[name=alice,password-file=FILE]"
        )
    if not (rest.startswith("[") and rest.endswith("]")):
        raise ConfigError(
            f"--add-scram {mechanism}=... must have its values in brackets: [name=...]"
        )
    values = _values(mechanism, text)
    user = values.get("name", "")
    if not user:
        raise ConfigError(f"--add-scram {mechanism}=[...] has no name=USER")
    what = f"--add-scram for {user}"
    given = [name for name in _OF_PASSWORD if name in values]
    if len(given) > 1:
        raise ConfigError(f"{what} has {' and '.join(given)}; give one of them")
    iterations = _iterations(what, values.get("iterations", str(ITERATIONS_MIN)))
    salt = _decoded(what, "salt", values["salt"]) if "salt" in values else rng.randbytes(SALT_BYTES)
    if not salt:
        raise ConfigError(f"{what}: the salt is empty")
    hash_name = HASHES[mechanism]
    if "saltedpassword" in values:
        if "salt" not in values:
            raise ConfigError(f"{what}: saltedpassword needs its salt")
        salted = _decoded(what, "saltedpassword", values["saltedpassword"])
        if len(salted) != hashlib.new(hash_name).digest_size:
            raise ConfigError(
                f"{what}: saltedpassword has {len(salted)} bytes, not those of a hash"
            )
    else:
        password = _password(what, user, values, ask)
        salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    stored_key, server_key = derived_keys(hash_name, salted)
    return ScramCredential(user, MECHANISMS[mechanism], iterations, salt, stored_key, server_key)


def _values(mechanism: str, text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for part in _parts(text):
        name, separator, value = part.strip().partition("=")
        if not separator or name not in _KEYS or name in values:
            # The text of the part is not shown: a password with a comma in it looks like this.
            raise ConfigError(
                f"--add-scram {mechanism}=[...] must have values of the form KEY=VALUE with commas "
                f"between them, each key once: {', '.join(_KEYS)}; a password with a comma goes "
                "into password-file=FILE"
            )
        is_quoted = len(value) > 1 and value[0] == value[-1] == '"'
        values[name] = value[1:-1] if is_quoted else value
    return values


def _iterations(what: str, text: str) -> int:
    try:
        iterations = int(text)
    except ValueError:
        iterations = -1
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ConfigError(
            f"{what}: iterations={text} must lie between {ITERATIONS_MIN} and {ITERATIONS_MAX}"
        )
    return iterations


def _decoded(what: str, name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(f"{what}: {name} is not base64") from error


def _password(what: str, user: str, values: dict[str, str], ask: Callable[[str], str]) -> str:
    if "password" in values:
        password = values["password"]
    elif "password-file" in values:
        path = values["password-file"]
        try:
            with open(path, encoding="utf-8") as file:
                password = file.read().removesuffix("\n")
        except OSError as error:
            raise ConfigError(f"{what}: cannot read {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{what}: {path} is no UTF-8") from error
    else:
        password = ask(user)
    if not password:
        raise ConfigError(f"{what}: the password is empty")
    return password
