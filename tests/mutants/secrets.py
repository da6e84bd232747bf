"""Rules about passwords, certificates and logins with tokens, each with an edit that breaks it."""

from __future__ import annotations

from tests.mutants.model import mutants_of

SECRETS = "kvorum/metadata/configs/secrets.py"
PRIVATE = "kvorum/runtime/private_files.py"
SECRET_PROPERTIES = "kvorum/launch/config/secret_properties.py"
NODE_FILE = "kvorum/launch/config/node_file.py"
TREE = "kvorum/metadata/inspect/tree.py"
EXPORT = "kvorum/metadata/inspect/export.py"
DUMP = "kvorum/cli/log.py"
OAUTH = "kvorum/broker/sasl/core/oauthbearer.py"
JWT = "kvorum/broker/sasl/core/jwt_validation.py"
KEY_SOURCE = "kvorum/broker/sasl/key_source.py"
SCRAM = "kvorum/broker/sasl/core/scram.py"
CLIENT = "kvorum/broker/sasl/core/client.py"
SERVER = "kvorum/broker/server.py"
CONNECTION = "kvorum/broker/network/connection.py"
OAUTH_SETTINGS = "kvorum/launch/config/oauthbearer.py"
SESSIONS = "kvorum/broker/sasl/core/authentication.py"
ADD_SCRAM = "kvorum/launch/cluster/add_scram.py"
INIT = "kvorum/launch/cluster/init.py"
CONTROLLER = "kvorum/metadata/controller/core/controller.py"
CERTIFICATES = "kvorum/launch/cluster/dev_certificates.py"
CERTIFICATE_FILES = "kvorum/launch/cluster/dev_certificate_files.py"
SECURE_PLAN = "kvorum/launch/cluster/secure_plan.py"

_RULES: tuple[tuple[str, str, str, str, str], ...] = (
    ("secret-record", "a dumped record shows no credential", SECRETS,
     "shown = fields | dict.fromkeys(hidden_fields(record), HIDDEN)", "shown = dict(fields)"),
    ("secret-config-record", "a dumped record shows no password of a config", SECRETS,
     'if "resource_type" in fields and "value" in fields:', "if False:"),
    ("secret-listener", "the password of a single listener is one", SECRETS,
     "return any(end is not None and end.is_sensitive for end in ends)", "return False"),
    ("secret-tree", "the tree shows no password of a config", TREE,
     "shown_config(kind, name, value) for name", "value for name"),
    ("secret-tree-credential", "the tree shows no credential", TREE,
     "entries |= dict.fromkeys(hidden_fields(value), HIDDEN)", "pass"),
    ("secret-export", "a table shows no password of a config", EXPORT,
     '"value": shown_config(kind, name, value),', '"value": value,'),
    ("secret-fields", "the fields of a record are hidden where they are made", SECRETS,
     "    shown = fields | dict.fromkeys(hidden_fields(record), HIDDEN)\n", "    shown = dict(fields)\n"),
    ("secret-dump", "the records of the metadata log are not dumped as bytes", DUMP,
     "of_metadata = _metadata_text if print_data_log and _is_metadata(path) else None",
     "of_metadata = None"),
    ("private-mask", "what a node writes is its owner's alone", PRIVATE,
     "before = os.umask(_MASK)", "before = os.umask(0o022)"),
    ("private-mask-ends", "the mask is as before behind the block", PRIVATE,
     "os.umask(before)", "pass"),
    ("secret-argument", "a password is on no command line", SECRET_PROPERTIES,
     "        if is_password(name):", "        if False:"),
    ("secret-argument-node", "a node takes no password from its command line", NODE_FILE,
     "    _refuse_passwords(given)\n", ""),
    ("secret-open-file", "a file of passwords for everybody is named", SECRET_PROPERTIES,
     "        if is_open:", "        if False:"),
    ("certs-user-as-node", "a user's certificate is for clients alone", CERTIFICATES,
     "    if wanted.is_node:\n", "    if True:\n"),
    ("certs-outlive", "no certificate outlives its CA", CERTIFICATES,
     "min(wanted.ends or authority.ends, authority.ends)", "wanted.ends or authority.ends"),
    ("certs-overwrite", "what is there is kept", CERTIFICATE_FILES,
     "if request.is_forced or not os.path.exists(paths[name])", "if True"),
    ("certs-new-ca", "a CA that lost its key is not replaced", CERTIFICATE_FILES,
     "if away == paths and may_begin", "if away and may_begin"),
    ("certs-second-ca", "no CA is made beside certificates of another", CERTIFICATE_FILES,
     "if away == paths and may_begin and not _certificates(folder):",
     "if away == paths and may_begin:"),
    ("certs-ca-of-added", "no CA is made for a node that is added", CERTIFICATE_FILES,
     "if away == paths and may_begin and not _certificates(folder):",
     "if away == paths and not _certificates(folder):"),
    ("certs-foreign", "a certificate of another CA is refused before a node starts", SECURE_PLAN,
     "if each.ends <= now or not each.is_own]", "if each.ends <= now]"),
    ("certs-chain", "a certificate may be of a CA below the one that is trusted", CERTIFICATES,
     "if issuer is None:", "if True:"),
    ("admin-unknown", "a cluster that has users gets no other password of admin", SECURE_PLAN,
     "if has_users and not os.path.exists(path):", "if False:"),
    ("certs-open", "keys are their owner's alone", CERTIFICATE_FILES,
     "    with private_files():", "    if True:"),
    ("first-users-again", "the first users are those of a new cluster alone", CONTROLLER,
     "(*levels, *self.first_records) if levels else ()", "(*levels, *self.first_records)"),
    ("first-users-forgotten", "a new cluster has its first users", CONTROLLER,
     "(*levels, *self.first_records) if levels else ()", "levels"),
    ("first-users-weak", "few iterations are refused", ADD_SCRAM,
     "if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:", "if iterations > ITERATIONS_MAX:"),
    ("first-users-same-salt", "each user has a salt of his own", ADD_SCRAM,
     "else rng.randbytes(SALT_BYTES)", 'else b"salt" * 6'),
    ("first-users-unsalted", "a salted password comes with its salt", ADD_SCRAM,
     'if "salt" not in values:', "if False:"),
    ("first-users-static", "static voters have no bootstrap checkpoint for users", INIT,
     "    _check_credentials(wanted)\n", ""),
    ("jwt-algorithm", "only the issuer's algorithms count", JWT,
     "if algorithm not in ALGORITHMS:", "if False:"),
    ("jwt-key-kind", "a key is for the algorithms of its kind", JWT,
     "found = [key for key in named if key.fits(algorithm)]", "found = list(named)"),
    ("jwt-key-algorithm", "a key with an algorithm is for no other", JWT,
     "if self.algorithm is not None and self.algorithm != algorithm:", "if False:"),
    ("jwt-key-id", "a token names its key", JWT,
     "if key_id is None or key.key_id == key_id]", "]"),
    ("jwt-signature", "the signature is checked", JWT,
     '"verify_signature": True,', '"verify_signature": False,'),
    ("jwt-expired", "a token ends", JWT,
     "if now_ms - skew_ms >= expires_ms:", "if False:"),
    ("jwt-skew", "clocks may differ a little", JWT,
     "if now_ms - skew_ms >= expires_ms:", "if now_ms >= expires_ms:"),
    ("jwt-not-before", "a token begins", JWT,
     'if "nbf" in claims and', "if False and"),
    ("jwt-audience", "a token is for this broker", JWT,
     "if not set(named) & set(self._expected.audience):", "if False:"),
    ("jwt-no-audience", "a token must name an audience if one is expected", JWT,
     "if named is None and not self._expected.audience:", "if named is None:"),
    ("jwt-issuer", "a token is of the expected issuer", JWT,
     'if issuer and claims.get("iss") != issuer:', "if False:"),
    ("jwt-user", "a token names a user", JWT,
     "if not isinstance(user, str) or not user.strip():", "if not isinstance(user, str):"),
    ("jwt-short-key", "short RSA keys sign nothing", JWT,
     "return key.key_size >= RSA_BITS_MIN", "return True"),
    ("jwt-encryption-key", "keys for encryption sign nothing", JWT,
     'form.get("use", "sig") != "sig"', "False"),
    ("oauth-other-user", "a client acts for itself alone", OAUTH,
     "if authorization_id and authorization_id != verified.user:", "if False:"),
    ("oauth-second-token", "a refused client has no second token", OAUTH,
     "        self._is_over = True\n", ""),
    ("oauth-open-error", "a refusal is confirmed by one octet alone", OAUTH,
     "if token == _AFTER_ERROR:", "if token:"),
    ("oauth-two-auth", "there is one auth in a message", OAUTH,
     'if len(values) != len(pairs) or "auth" not in values:', 'if "auth" not in values:'),
    ("oauth-session", "a session ends with its token", SESSIONS,
     "return max(min(of_proof_ms, most_ms) if most_ms else of_proof_ms, 1)", "return most_ms"),
    ("oauth-session-never", "a token that ends now gives no endless session", SESSIONS,
     "return max(min(of_proof_ms, most_ms) if most_ms else of_proof_ms, 1)",
     "return max(min(of_proof_ms, most_ms) if most_ms else of_proof_ms, 0)"),
    ("oauth-keys-lost", "a failed fetch keeps the keys", KEY_SOURCE,
     "            self._is_failing = True\n", "            self._is_failing = True\n            self.keys = ()\n"),
    ("oauth-fetch-storm", "a client cannot have keys fetched at will", KEY_SOURCE,
     "now_ms - self._asked_ms >= EXPEDITED_MS_MIN", "True"),
    ("oauth-fetch-all", "only an unknown key is a reason to fetch", KEY_SOURCE,
     "except KeyUnknown:", "except Exception:"),
    ("oauth-endless-text", "a key set is small", KEY_SOURCE,
     "if len(data) > BYTES_MAX:", "if False:"),
    ("oauth-unsecured-class", "Kafka's class for unsigned tokens is refused", OAUTH_SETTINGS,
     "if handler and handler not in _HANDLERS:", "if False:"),
    ("oauth-unsecured-option", "options for unsigned tokens are refused", OAUTH_SETTINGS,
     "    if unsecured:\n", "    if False:\n"),
    ("login-large-scram", "no login has a message of half a megabyte", SCRAM,
     "if len(token) > MESSAGE_BYTES_MAX:", "if False:"),
    ("login-large-oauth", "no token has half a megabyte", OAUTH,
     "if len(token) > MESSAGE_BYTES_MAX:", "if False:"),
    ("login-extension", "a client stops at an extension that it must know", CLIENT,
     "        if found is None:\n", "        if found is None and not first.startswith('m='):\n"),
    ("login-versions", "asking for versions is no login", SESSIONS,
     "if self._versions_asked > VERSIONS_ASKED_MAX:", "if False:"),
    ("login-versions-later", "a client that is logged in asks as it likes", SESSIONS,
     "elif api_key == API_VERSIONS_KEY and not self.user:", "elif api_key == API_VERSIONS_KEY:"),
    ("login-slow", "a client logs in in time or leaves", SERVER,
     "elif connection.must_log_in and", "elif False and"),
    ("login-done", "a client that is logged in stays", CONNECTION,
     "return self.authentication is not None and not self.authentication.is_done",
     "return self.authentication is not None"),
)  # fmt: skip

MUTANTS = mutants_of(
    _RULES,
    tests=(
        "tests/test_broker/test_before_login.py",
        "tests/test_broker/test_sasl.py",
        "tests/test_broker/test_oauthbearer.py",
        "tests/test_cli/test_secrets.py",
        "tests/test_launch/test_add_scram.py",
        "tests/test_launch/test_dev_certificates.py",
        "tests/test_launch/test_oauthbearer_settings.py",
        "tests/test_launch/test_secret_properties.py",
        "tests/test_launch/test_secure_plan.py",
    ),
)
