"""The tree, and what is asked of it: ls, cat, tree, find, diff."""

import dataclasses
import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvorum.metadata.configs.quotas import entity_text
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.features import SUPPORTED
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage, PartitionImage, TopicImage
from kvorum.metadata.image.persistent_map import Map
from kvorum.metadata.image.records import (
    HIDDEN,
    Config,
    Endpoint,
    Partition,
    RegisterBroker,
    RegisterController,
    Topic,
)
from kvorum.metadata.inspect.tree import (
    REPEATING,
    NoSuchPath,
    children,
    content,
    expanded,
    leaves,
    parts_of,
    resolve,
    root,
)
from kvorum.metadata.inspect.tree_queries import (
    BELOW,
    complete,
    difference,
    find,
    tree_content,
    tree_lines,
)
from tests.test_metadata.folders import records_of_seed, replayed

RECORDS = (
    RegisterBroker(7, 0, b"i" * 16, (Endpoint("PLAINTEXT", "h", 9),), "r", False, SUPPORTED),
    RegisterController(1, b"c" * 16, (Endpoint("CONTROLLER", "h", 8),), SUPPORTED),
    Topic("orders", b"o" * 16),
    Partition(b"o" * 16, 0, (7, 8), (7,), 7, 1, 2),
    Partition(b"o" * 16, 10, (8,), (8,), 8),
    Partition(b"o" * 16, 2, (8,), (8,), 8),
    Config(2, "orders", "retention.ms", "1"),
    Config(4, "", "log.retention.ms", "2"),
    Config(32, "g/1", "x", "y"),
)


@pytest.fixture
def image():
    delta = Delta(EMPTY_IMAGE)
    delta.replay_all(RECORDS)
    return delta.apply(end_offset=9, epoch=2)


def test_everything_has_its_place(image):
    assert children(image, "/") == [
        "brokers/", "topics/", "topics_by_id/", "configs/", "features/", "controllers/",
        "producer_ids/", "client_quotas/", "scram_credentials/", "acls/", "delegation_tokens/",
        "provenance/",
    ]  # fmt: skip
    assert children(image, "/topics") == ["orders/"]
    assert children(image, "/topics/orders") == ["id", "0/", "2/", "10/"]
    (topic_id,) = children(image, "/topics_by_id")
    assert topic_id == content(image, "/topics/orders/id") + "/"
    assert content(image, f"/topics_by_id/{topic_id}") == {
        "name": "orders", **content(image, "/topics/orders")
    }  # fmt: skip
    shown = content(image, "/topics/orders/0")
    assert [shown[name] for name in ("replicas", "isr", "leader")] == [[7, 8], [7], 7]
    assert [shown[name] for name in ("leader_epoch", "partition_epoch")] == [1, 2]
    broker = content(image, "/brokers/7")
    assert broker["endpoints"] == ["PLAINTEXT://h:9"] and broker["rack"] == "r"
    assert broker["features"] == {f.name: [f.min_level, f.max_level] for f in SUPPORTED}
    assert content(image, "/controllers/1/endpoints") == ["CONTROLLER://h:8"]
    assert content(image, "/configs") == {
        "topic": {"orders": {"retention.ms": "1"}},
        "broker": {"<default>": {"log.retention.ms": "2"}},
        "group": {"g%2F1": {"x": HIDDEN}},  # no group config has this name
    }
    assert content(image, "/provenance") == {"end_offset": 9, "epoch": 2}


def test_path_that_names_nothing_is_refused_up_to_the_missing_part(image):
    with pytest.raises(NoSuchPath, match=r"metadata: /topics/gone$"):
        content(image, "/topics/gone/0")
    with pytest.raises(NoSuchPath, match=r"/topics/orders/id/deeper$"):
        content(image, "topics/orders/id/deeper")
    assert parts_of("/a/./b/../../..//c/") == ["c"]


def test_listing_a_folder_makes_nothing_below_it():
    class Untouchable:
        """A partition map that must not be looked into."""

        def __getattr__(self, name):
            raise AssertionError(f"{name} of a topic's partitions was asked for")

    topics = Map({bytes([n]) * 16: TopicImage(f"t{n}", b"", Untouchable()) for n in range(3)})
    image = ClusterImage(topics=topics)
    assert children(image, "/topics") == ["t0/", "t1/", "t2/"]
    assert children(image, "/")[1] == "topics/"
    assert list(tree_lines(root(image), 1))[1] == "topics/"
    assert tree_content(resolve(root(image), "/topics"), 1) == dict.fromkeys(
        ("t0", "t1", "t2"), BELOW
    )
    assert [path for path, _, _ in find(root(image), "/topics/t1")] == ["/topics/t1"]
    assert complete(root(image), "/topics/t") == ["/topics/t0/", "/topics/t1/", "/topics/t2/"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LaterImage(ClusterImage):
    """An image of a build that knows more."""

    client_quotas: Map = dataclasses.field(default_factory=Map)
    leases: frozenset = frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class LaterPartition(PartitionImage):
    adding: tuple[int, ...] = ()


def test_fields_that_are_new_in_an_image_show_by_themselves():
    partition = LaterPartition((1,), (1,), 1, 0, 0, adding=(2, 3))
    image = LaterImage(
        topics=Map({b"o" * 16: TopicImage("orders", b"o" * 16, Map({0: partition}))}),
        client_quotas=Map({(("client-id", None), ("user", "a/b")): Map({"rate": 1.5})}),
        leases=frozenset({3, 1}),
    )
    assert content(image, "/topics/orders/0/adding") == [2, 3]
    assert content(image, "/client_quotas") == {"client-id=<default>,user=a%2Fb": {"rate": 1.5}}
    assert content(image, "/leases") == [1, 3]


def test_quotas_of_different_entities_never_have_one_name():
    entities = [
        (("client-id", "c"), ("user", "u")),
        (("client-id", "c,user=u"),),
        (("user", None),),
        (("user", "<default>"),),
        (("user", "a%2Cb"),),
        (("user", "a,b"),),
        (("user", "\x1b[31mred\n"),),
    ]
    quotas = Map({entity: Map({"rate": 1.0}) for entity in entities})
    shown = content(dataclasses.replace(EMPTY_IMAGE, client_quotas=quotas), "/client_quotas")
    assert set(shown) == {
        "client-id=c,user=u",
        "client-id=c%2Cuser%3Du",
        "user=<default>",
        "user=%3Cdefault>",
        "user=a%252Cb",
        "user=a%2Cb",
        "user=%1B[31mred%0A",
    }
    assert set(map(entity_text, entities)) == set(shown)


def test_tree_is_lines_to_a_depth(image):
    node = resolve(root(image), "/topics")
    assert list(tree_lines(node, 1)) == ["orders/"]
    lines = list(tree_lines(node, 2))
    assert [re.sub("= .*", "=", line) for line in lines] == [
        "orders/", "  id =", "  0/", "  2/", "  10/",
    ]  # fmt: skip
    whole = list(tree_lines(node, None))
    assert whole[2:6] == ["  0/", "    replicas = [7, 8]", "    isr = [7]", "    leader = 7"]
    assert tree_content(node, None) == content(image, "/topics")
    assert list(tree_lines(resolve(root(image), "/brokers/7/is_fenced"), None)) == ["false"]


def find_slowly(image, pattern):
    """Every path of the image, one by one, against a regular expression of the pattern."""

    def matches(names, parts):
        if not parts:
            return not names
        if parts[0] == "**":
            return any(matches(names[at:], parts[1:]) for at in range(len(names) + 1))
        return bool(names) and fnmatchcase(names[0], parts[0]) and matches(names[1:], parts[1:])

    parts = parts_of(pattern) if "/" in pattern else ["**", pattern]
    named_first = [part for part in parts if part != "**"][:1]
    paths = []

    def walk(value, names):
        if names and matches(names, parts):
            paths.append("/" + "/".join(names))
        for name, child in value.items() if isinstance(value, dict) else ():
            if names or name not in REPEATING or name in named_first:
                walk(child, [*names, name])

    walk(expanded(root(image)), [])
    return paths


PATTERN_PARTS = st.sampled_from(
    ["**", "*", "topics", "orders", "0", "[01]*", "leader*", "?d", "configs", "topics_by_id"]
)


@given(st.lists(PATTERN_PARTS, min_size=1, max_size=4).map("/".join), st.booleans())
@example("leader", False)
@example("**", True)
@settings(deadline=None)
def test_find_gives_what_trying_every_path_gives(pattern, is_rooted):
    delta = Delta(EMPTY_IMAGE)
    delta.replay_all(RECORDS)
    image = delta.apply(end_offset=9, epoch=2)
    pattern = f"/{pattern}" if is_rooted else pattern
    found = [path for path, _, _ in find(root(image), pattern)]
    assert sorted(set(found)) == sorted(find_slowly(image, pattern))
    assert pattern.count("**") > 1 or len(found) == len(set(found))


def test_find_by_value_gives_leaves_only(image):
    found = list(find(root(image), "*", value_text="8"))
    assert ("/topics/orders/0/replicas", [7, 8], False) in found
    assert ("/topics/orders/10/leader", 8, False) in found
    assert not any(is_folder for _, _, is_folder in found)
    start = list(find(root(image), "leader", start="/topics/orders/2"))
    assert start == [("/topics/orders/2/leader", 8, False)]
    (topic_id,) = children(image, "/topics_by_id")
    assert len(list(find(root(image), "leader", start="/topics_by_id"))) == 3
    assert len(list(find(root(image), f"topics_by_id/{topic_id}*/leader"))) == 3


def paths_of(image):
    return {
        path: value
        for name, node in root(image).build().items()
        if name not in REPEATING
        for path, value in leaves(node, f"/{name}")
    }


def leaves_of_difference(differences):
    """Differences as leaves that went and leaves that came."""
    before, after = {}, {}
    for each in differences:
        for side, value in ((before, each.before), (after, each.after)):
            stack = [(each.path, value)]
            while stack:
                path, node = stack.pop()
                if isinstance(node, dict):
                    stack += [(f"{path}/{name}", child) for name, child in node.items()]
                elif each.change == "changed" or side is (
                    after if each.change == "added" else before
                ):
                    side[path] = node
    return before, after


@given(st.integers(0, 20), st.integers(0, 200), st.integers(0, 200))
@settings(deadline=None, max_examples=40)
def test_difference_of_two_offsets_is_what_the_records_between_changed(seed, first, second):
    records = records_of_seed(seed)
    first, second = (min(offset, len(records)) for offset in (first, second))
    # From nothing each, so that equal parts are not the same objects.
    old, new = replayed(records, first), replayed(records, second)
    differences = list(difference(root(old), root(new)))
    before, after = leaves_of_difference(differences)
    old_leaves, new_leaves = paths_of(old), paths_of(new)
    assert before == {p: v for p, v in old_leaves.items() if new_leaves.get(p, ...) != v}
    assert after == {p: v for p, v in new_leaves.items() if old_leaves.get(p, ...) != v}
    assert len({each.path for each in differences}) == len(differences)


def test_difference_names_what_is_new_gone_and_changed(image):
    delta = Delta(image)
    delta.replay_all(
        [
            Topic("more", b"m" * 16),
            Config(2, "orders", "retention.ms", "5"),
            Config(4, "", "log.retention.ms", None),
        ]
    )
    after = delta.apply(end_offset=12, epoch=2)
    found = {(d.change, d.path): (d.before, d.after) for d in difference(root(image), root(after))}
    assert found == {
        ("removed", "/configs/broker"): ({"<default>": {"log.retention.ms": "2"}}, None),
        ("changed", "/configs/topic/orders/retention.ms"): ("1", "5"),
        ("added", "/topics/more"): (None, {"id": content(after, "/topics/more/id")}),
    }
    assert list(difference(root(after), root(after))) == []
