"""Rules about passwords, certificates and logins with tokens, each with an edit that breaks it."""

from __future__ import annotations

from tests.mutants.model import mutants_of

SECRETS = "metadata/configs/secrets.py"
PRIVATE = "runtime/private_files.py"
SECRET_PROPERTIES = "launch/secret_properties.py"
NODE_FILE = "launch/node_file.py"
TREE = "metadata/inspect/tree.py"
EXPORT = "metadata/inspect/export.py"
CODEC = "metadata/image/record_codec.py"
DUMP = "kvorum/cli/log.py"
ADD_SCRAM = "launch/add_scram.py"
INIT = "launch/init.py"
CONTROLLER = "metadata/controller/controller.py"
CERTIFICATES = "launch/dev_certificates.py"
CERTIFICATE_FILES = "launch/dev_certificate_files.py"

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
    ("secret-fields", "the fields of a record are hidden where they are made", CODEC,
     "return shown_fields(record, dataclasses.asdict(record))", "return dataclasses.asdict(record)"),
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
     "if os.path.exists(path) and not request.is_forced:", "if False:"),
    ("certs-new-ca", "a CA that lost its key is not replaced", CERTIFICATE_FILES,
     "    if not any(there):", "    if not all(there):"),
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
)  # fmt: skip

MUTANTS = mutants_of(
    _RULES,
    tests=(
        "tests/test_cli/test_secrets.py",
        "tests/test_launch/test_add_scram.py",
        "tests/test_launch/test_dev_certificates.py",
        "tests/test_launch/test_secret_properties.py",
    ),
)
