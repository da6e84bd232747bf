import static org.apache.kafka.clients.consumer.AcknowledgeType.ACCEPT;
import static org.apache.kafka.clients.consumer.AcknowledgeType.REJECT;
import static org.apache.kafka.clients.consumer.AcknowledgeType.RELEASE;
import static org.apache.kafka.clients.consumer.AcknowledgeType.RENEW;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;

/**
 * Small stories of share groups. Each prints one line, `name: what was seen`, which must be the same
 * on Kvorum and on Apache Kafka. Arguments: bootstrap address, prefix of all names, threads, and the
 * stories' names or none for all.
 */
public final class Queues {
    private Queues() {}

    interface Told {
        String of(Queue queue) throws Exception;
    }

    private static final Map<String, Told> ALL = new TreeMap<>();

    public static void main(String[] arguments) throws Exception {
        simple();
        fates();
        limits();
        sessions();
        groups();
        offsets();
        logs();
        transactions();
        refusals();
        DeadLetters.add(ALL);
        List<String> names = List.of(arguments).subList(3, arguments.length);
        var pool = Executors.newFixedThreadPool(Integer.parseInt(arguments[2]));
        Map<String, Future<String>> lines = new TreeMap<>();
        for (String name : names.isEmpty() ? List.copyOf(ALL.keySet()) : names) {
            lines.put(name, pool.submit(() -> told(arguments[0], arguments[1], name)));
        }
        for (var line : lines.entrySet()) {
            System.out.println(line.getKey() + ": " + line.getValue().get());
        }
        pool.shutdown();
    }

    private static String told(String bootstrap, String prefix, String name) {
        try (Queue queue = new Queue(bootstrap, prefix + "-" + name)) {
            return ALL.get(name).of(queue);
        } catch (Throwable failure) {
            return "failed " + cause(failure) + " " + List.of(failure.getStackTrace()).get(0);
        }
    }

    static String cause(Throwable failure) {
        Throwable cause = failure;
        while (cause instanceof ExecutionException && cause.getCause() != null) {
            cause = cause.getCause();
        }
        return cause.getClass().getSimpleName();
    }

    interface Work {
        void run() throws Exception;
    }

    /** The simple name of what the work throws, or "nothing". */
    static String thrown(Work work) {
        try {
            work.run();
            return "nothing";
        } catch (Throwable failure) {
            return cause(failure);
        }
    }

    /** Offsets with delivery counts, in order. */
    static String seen(List<ConsumerRecord<String, String>> records) {
        var rows = new TreeMap<Long, String>();
        for (var record : records) {
            rows.put(record.offset(), record.offset() + "x" + record.deliveryCount().orElse((short) -1));
        }
        return String.join(" ", rows.values());
    }

    // --- simple reading ----------------------------------------------------------------------

    private static void simple() {
        for (int count : new int[] {1, 2, 10, 100, 1000}) {
            ALL.put("implicit-" + count, queue -> {
                queue.produce(count);
                try (var member = queue.member()) {
                    int got = member.take(count).size();
                    member.commit();
                    return got + " then " + member.idle().size() + ", " + queue.offsets();
                }
            });
        }
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            ALL.put("codec-" + codec, queue -> {
                queue.produce(20, "compression.type", codec, "linger.ms", "50");
                try (var member = queue.member()) {
                    var values = new TreeSet<String>();
                    member.take(20).forEach(record -> values.add(record.value()));
                    return values.size() + " " + values.first() + " " + values.last();
                }
            });
        }
        for (int partitions : new int[] {2, 5}) {
            ALL.put("partitions-" + partitions, queue -> {
                queue.topic(partitions);
                for (int partition = 0; partition < partitions; partition++) {
                    queue.produceTo(partition, 4);
                }
                try (var member = queue.member()) {
                    var counts = new TreeMap<Integer, Integer>();
                    member.take(4 * partitions).forEach(r -> counts.merge(r.partition(), 1, Integer::sum));
                    return counts.toString();
                }
            });
        }
        ALL.put("headers-and-keys", queue -> {
            queue.produceFull("key", "value", "h", "1");
            try (var member = queue.member()) {
                var record = member.take(1).get(0);
                return record.key() + " " + record.value() + " "
                    + new String(record.headers().lastHeader("h").value()) + " " + record.timestampType();
            }
        });
        ALL.put("latest-sees-new-records-only", queue -> {
            queue.config("share.auto.offset.reset", "latest");
            queue.produce(5);
            try (var member = queue.member()) {
                // The choice is made when the first member fetches, and nobody can see when.
                List<ConsumerRecord<String, String>> found = List.of();
                while (found.isEmpty()) {
                    queue.produce(1);
                    found = member.idle();
                }
                return "" + (found.get(0).offset() >= 5);
            }
        });
        ALL.put("by-duration-of-a-day-sees-all", queue -> {
            queue.config("share.auto.offset.reset", "by_duration:P1D");
            queue.produce(5);
            try (var member = queue.member()) {
                return seen(member.take(5));
            }
        });
        ALL.put("by-duration-of-nothing-sees-new", queue -> {
            queue.config("share.auto.offset.reset", "by_duration:PT0S");
            queue.produce(5);
            Thread.sleep(50);
            try (var member = queue.member()) {
                return "" + member.idle().size();
            }
        });
        ALL.put("two-topics", queue -> {
            queue.produce(3);
            String other = queue.otherTopic(3);
            try (var member = queue.member()) {
                member.consumer.subscribe(List.of(queue.topic, other));
                var topics = new TreeMap<Boolean, Integer>();
                member.take(6).forEach(r -> topics.merge(r.topic().equals(other), 1, Integer::sum));
                return topics.toString();
            }
        });
        ALL.put("unsubscribe-and-again", queue -> {
            queue.produce(4);
            try (var member = queue.member()) {
                member.take(4);
                member.commit();
                member.consumer.unsubscribe();
                String left = member.consumer.subscription().toString();
                queue.produce(2);
                member.consumer.subscribe(List.of(queue.topic));
                return left + " " + seen(member.take(2));
            }
        });
        ALL.put("a-topic-that-comes-later", queue -> {
            String later = queue.name("later");
            try (var member = queue.member()) {
                member.consumer.subscribe(List.of(later));
                member.idle();
                queue.produceIn(later, 3);
                return seen(member.take(3));
            }
        });
        ALL.put("partitions-that-come-later", queue -> {
            queue.produce(2);
            try (var member = queue.member()) {
                member.take(2);
                queue.admin.createPartitions(Map.of(queue.topic, NewPartitions.increaseTo(2))).all().get();
                queue.untilPartitions(2);
                queue.produceTo(1, 3);
                return seen(member.take(3));
            }
        });
        ALL.put("wakeup", queue -> {
            try (var member = queue.member()) {
                member.consumer.wakeup();
                return thrown(() -> member.consumer.poll(Duration.ofSeconds(5)));
            }
        });
    }

    // --- the fate of records -----------------------------------------------------------------

    private static void fates() {
        for (AcknowledgeType type : List.of(ACCEPT, RELEASE, REJECT)) {
            for (int count : new int[] {1, 7}) {
                ALL.put("all-" + type + "-" + count, queue -> {
                    queue.produce(count);
                    try (var member = queue.explicit()) {
                        member.take(count).forEach(r -> member.consumer.acknowledge(r, type));
                        String first = member.commit();
                        return first + " then " + seen(type == RELEASE ? member.take(count) : member.idle());
                    }
                });
            }
        }
        String[] patterns = {"ar", "ra", "aar", "rra", "ax", "xa", "xar", "rax", "aarxx", "rrxxa"};
        for (String pattern : patterns) {
            ALL.put("pattern-" + pattern, queue -> {
                queue.produce(12);
                try (var member = queue.explicit()) {
                    int released = 0;
                    for (var record : member.take(12)) {
                        char fate = pattern.charAt((int) record.offset() % pattern.length());
                        released += fate == 'r' ? 1 : 0;
                        member.consumer.acknowledge(record, fate == 'a' ? ACCEPT : fate == 'r' ? RELEASE : REJECT);
                    }
                    String first = member.commit();
                    String again = seen(released > 0 ? member.take(released) : member.idle());
                    return first + " then " + again;
                }
            });
        }
        for (int limit : new int[] {2, 3, 5}) {
            ALL.put("released-to-the-limit-" + limit, queue -> {
                queue.config("share.delivery.count.limit", "" + limit);
                queue.produce(1);
                var all = new ArrayList<String>();
                try (var member = queue.explicit()) {
                    for (int at = 0; at < limit; at++) {
                        var records = member.take(1);
                        all.add(seen(records));
                        records.forEach(r -> member.consumer.acknowledge(r, RELEASE));
                        member.commit();
                    }
                    return all + " then " + member.idle().size() + ", " + queue.offsets();
                }
            });
        }
        for (int limit : new int[] {2, 5, 7, 10}) {
            ALL.put("pieces-of-bad-records-" + limit, queue -> {
                queue.config("share.delivery.count.limit", "" + limit);
                queue.produce(32, "linger.ms", "200");
                var sizes = new ArrayList<String>();
                try (var member = queue.explicit()) {
                    for (int at = 0; at < 40; at++) {
                        var records = member.take(1);
                        if (records.isEmpty()) {
                            break;
                        }
                        sizes.add(records.size() + "@" + records.get(0).offset() + "x"
                            + records.get(0).deliveryCount().get());
                        records.forEach(r -> member.consumer.acknowledge(r, RELEASE));
                        member.commit();
                    }
                    return sizes.toString();
                }
            });
        }
        ALL.put("renewed-and-accepted", queue -> {
            queue.produce(3);
            try (var member = queue.explicit()) {
                var records = member.take(3);
                records.forEach(r -> member.consumer.acknowledge(r, RENEW));
                String renewed = member.commit();
                member.consumer.poll(Duration.ofMillis(200));
                records.forEach(r -> member.consumer.acknowledge(r, ACCEPT));
                return renewed + " " + member.commit() + ", " + queue.offsets();
            }
        });
        ALL.put("a-lock-that-ends", queue -> {
            queue.config("share.record.lock.duration.ms", "15000");
            queue.produce(3);
            try (var member = queue.explicit(); var other = queue.explicit()) {
                var records = member.take(3);
                String lock = "" + member.consumer.acquisitionLockTimeoutMs().orElse(-1);
                String again = seen(other.take(3));
                records.forEach(r -> member.consumer.acknowledge(r, ACCEPT));
                return lock + " " + seen(records) + " then " + (again.contains("x1") ? again : "later") + " " + member.commit();
            }
        });
        ALL.put("released-records-go-to-another", queue -> {
            queue.produce(3);
            try (var member = queue.explicit()) {
                member.take(3).forEach(r -> member.consumer.acknowledge(r, RELEASE));
                member.commit();
            }
            try (var other = queue.explicit()) {
                return seen(other.take(3));
            }
        });
    }

    // --- limits ------------------------------------------------------------------------------

    private static void limits() {
        for (int most : new int[] {1, 3, 10}) {
            ALL.put("record-limit-" + most, queue -> {
                queue.produce(20, "linger.ms", "200");
                try (var member = queue.explicit("max.poll.records", "" + most, "share.acquire.mode",
                        "record_limit")) {
                    var first = member.take(most);
                    first.forEach(r -> member.consumer.acknowledge(r, ACCEPT));
                    member.commit();
                    var second = member.take(most);
                    return first.size() + " " + second.size() + " " + second.get(0).offset();
                }
            });
        }
        ALL.put("records-in-flight", queue -> {
            queue.config("share.partition.max.record.locks", "100");
            for (int at = 0; at < 30; at++) {
                queue.produce(10, "linger.ms", "50");
            }
            try (var member = queue.explicit(); var other = queue.explicit()) {
                int held = 0;
                var records = member.take(1);
                held += records.size();
                held += other.idle().size();
                for (var record : records) {
                    member.consumer.acknowledge(record, ACCEPT);
                }
                return held <= 110 && held >= 10 ? "bounded" : "" + held;
            }
        });
        for (String[] row : new String[][] {
            {"share.delivery.count.limit", "1"}, {"share.delivery.count.limit", "11"},
            {"share.record.lock.duration.ms", "1"}, {"share.record.lock.duration.ms", "999999"},
            {"share.partition.max.record.locks", "10"}, {"share.auto.offset.reset", "sometimes"},
            {"share.isolation.level", "serializable"}, {"share.session.timeout.ms", "1"},
            {"share.heartbeat.interval.ms", "1"}, {"share.renew.acknowledge.enable", "maybe"},
        }) {
            ALL.put("config-" + row[0] + "-" + row[1], queue -> thrown(() -> queue.config(row[0], row[1])));
        }
    }

    // --- sessions and members ----------------------------------------------------------------

    private static void sessions() {
        ALL.put("a-member-that-closes-gives-back", queue -> {
            queue.produce(4);
            try (var member = queue.explicit()) {
                member.take(4);
            }
            try (var other = queue.explicit()) {
                return seen(other.take(4));
            }
        });
        ALL.put("acknowledged-and-closed", queue -> {
            queue.produce(4);
            try (var member = queue.explicit()) {
                member.take(4).forEach(r -> member.consumer.acknowledge(r, ACCEPT));
            }
            try (var other = queue.explicit()) {
                return other.idle().size() + ", " + queue.offsets();
            }
        });
        for (int members : new int[] {2, 4}) {
            ALL.put("members-share-" + members, queue -> {
                var all = new ArrayList<Queue.Member>();
                try {
                    for (int at = 0; at < members; at++) {
                        var member = queue.member();
                        member.idle();
                        all.add(member);
                    }
                    Set<Long> offsets = new TreeSet<>();
                    int total = 0;
                    for (int at = 0; at < 40; at++) {
                        queue.produce(5);
                    }
                    long end = System.currentTimeMillis() + 60_000;
                    while (total < 200 && System.currentTimeMillis() < end) {
                        for (var member : all) {
                            for (var record : member.consumer.poll(Duration.ofMillis(50))) {
                                offsets.add(record.offset());
                                total++;
                            }
                        }
                    }
                    return total + " " + offsets.size();
                } finally {
                    for (var member : all) {
                        member.close();
                    }
                }
            });
        }
        ALL.put("a-new-member-goes-on", queue -> {
            queue.produce(10);
            try (var member = queue.explicit()) {
                member.take(10).stream().filter(r -> r.offset() % 2 == 0)
                    .forEach(r -> member.consumer.acknowledge(r, ACCEPT));
                member.consumer.commitSync();
            }
            try (var other = queue.explicit()) {
                return seen(other.take(5));
            }
        });
        ALL.put("two-groups-see-all", queue -> {
            queue.produce(6);
            try (var member = queue.member()) {
                int first = member.take(6).size();
                try (var other = queue.memberOf(queue.name("second"))) {
                    return first + " " + other.take(6).size();
                }
            }
        });
    }

    // --- groups ------------------------------------------------------------------------------

    private static void groups() {
        ALL.put("described", queue -> {
            try (var member = queue.member()) {
                member.idle();
                var found = queue.admin.describeShareGroups(List.of(queue.group)).all().get().get(queue.group);
                var one = found.members().iterator().next();
                return found.groupState() + " " + found.members().size() + " "
                    + one.assignment().topicPartitions().size() + " " + one.clientId() + " " + one.host();
            }
        });
        ALL.put("described-when-empty", queue -> {
            try (var member = queue.member()) {
                member.idle();
            }
            var found = queue.admin.describeShareGroups(List.of(queue.group)).all().get().get(queue.group);
            return found.groupState() + " " + found.members().size();
        });
        ALL.put("described-when-missing", queue ->
            thrown(() -> queue.admin.describeShareGroups(List.of(queue.name("none"))).all().get()));
        ALL.put("listed", queue -> {
            try (var member = queue.member()) {
                member.idle();
                var rows = queue.admin.listGroups(ListGroupsOptions.forShareGroups()).all().get();
                var row = rows.stream().filter(r -> r.groupId().equals(queue.group)).findFirst().get();
                return row.type().get() + " " + row.protocol() + " " + row.groupState().get();
            }
        });
        ALL.put("not-listed-as-another-type", queue -> {
            try (var member = queue.member()) {
                member.idle();
                var types = new ListGroupsOptions().withTypes(Set.of(GroupType.CONSUMER, GroupType.CLASSIC));
                var rows = queue.admin.listGroups(types).all().get();
                return "" + rows.stream().anyMatch(r -> r.groupId().equals(queue.group));
            }
        });
        ALL.put("deleted-with-members", queue -> {
            try (var member = queue.member()) {
                member.idle();
                return thrown(() -> queue.admin.deleteShareGroups(List.of(queue.group)).all().get());
            }
        });
        ALL.put("deleted-and-made-again", queue -> {
            queue.produce(3);
            try (var member = queue.member()) {
                member.take(3);
                member.commit();
            }
            queue.admin.deleteShareGroups(List.of(queue.group)).all().get();
            try (var member = queue.member()) {
                return seen(member.take(3));
            }
        });
        ALL.put("deleted-when-missing", queue ->
            thrown(() -> queue.admin.deleteShareGroups(List.of(queue.name("none"))).all().get()));
        ALL.put("described-as-a-consumer-group", queue -> {
            try (var member = queue.member()) {
                member.idle();
                return thrown(() -> queue.admin.describeConsumerGroups(List.of(queue.group)).all().get());
            }
        });
        ALL.put("offsets-as-of-a-consumer-group", queue -> {
            try (var member = queue.member()) {
                member.idle();
                return thrown(() -> queue.admin.listConsumerGroupOffsets(queue.group)
                    .partitionsToOffsetAndMetadata().get());
            }
        });
        for (String protocol : List.of("classic", "consumer")) {
            ALL.put("a-" + protocol + "-member-in-a-share-group", queue -> {
                try (var member = queue.member()) {
                    member.idle();
                    return thrown(() -> queue.readAsConsumer(protocol));
                }
            });
            ALL.put("a-share-member-in-a-" + protocol + "-group", queue -> {
                queue.produce(1);
                queue.readAsConsumer(protocol);
                try (var member = queue.member()) {
                    return thrown(member::idleOrThrow);
                }
            });
        }
    }

    // --- offsets -----------------------------------------------------------------------------

    private static void offsets() {
        ALL.put("offsets-while-in-flight", queue -> {
            queue.produce(10);
            try (var member = queue.explicit()) {
                member.take(10).stream().filter(r -> r.offset() < 4 || r.offset() == 6)
                    .forEach(r -> member.consumer.acknowledge(r, ACCEPT));
                member.consumer.commitSync();
                return queue.offsets();
            }
        });
        ALL.put("offsets-of-a-missing-group", queue -> thrown(() -> queue.offsetsOf(queue.name("none"))));
        for (long offset : new long[] {0, 3, 10}) {
            ALL.put("altered-to-" + offset, queue -> {
                queue.produce(10);
                try (var member = queue.member()) {
                    member.take(10);
                    member.commit();
                }
                queue.alter(offset);
                String after = queue.offsets();
                try (var member = queue.member()) {
                    return after + " " + seen(offset == 10 ? member.idle() : member.take((int) (10 - offset)));
                }
            });
        }
        ALL.put("altered-with-members", queue -> {
            try (var member = queue.member()) {
                member.idle();
                return thrown(() -> queue.alter(0));
            }
        });
        ALL.put("altered-in-a-missing-group", queue -> {
            queue.topic(1);
            return thrown(() -> queue.alter(0));
        });
        ALL.put("offsets-deleted", queue -> {
            queue.produce(4);
            try (var member = queue.member()) {
                member.take(4);
                member.commit();
            }
            queue.admin.deleteShareGroupOffsets(queue.group, Set.of(queue.topic)).all().get();
            String after = queue.offsets();
            try (var member = queue.member()) {
                return after + " " + seen(member.take(4));
            }
        });
        ALL.put("offsets-deleted-with-members", queue -> {
            try (var member = queue.member()) {
                member.idle();
                return thrown(() ->
                    queue.admin.deleteShareGroupOffsets(queue.group, Set.of(queue.topic)).all().get());
            }
        });
        ALL.put("offsets-deleted-of-a-missing-topic", queue -> {
            try (var member = queue.member()) {
                member.idle();
            }
            return thrown(() ->
                queue.admin.deleteShareGroupOffsets(queue.group, Set.of(queue.name("none"))).all().get());
        });
    }

    // --- the log -----------------------------------------------------------------------------

    private static void logs() {
        ALL.put("records-deleted-before-reading", queue -> {
            queue.produce(10);
            queue.deleteRecords(6);
            try (var member = queue.member()) {
                return seen(member.take(4));
            }
        });
        ALL.put("records-deleted-while-in-flight", queue -> {
            queue.produce(10);
            try (var member = queue.explicit()) {
                var records = member.take(10);
                queue.deleteRecords(6);
                records.stream().filter(r -> r.offset() >= 6).forEach(r -> member.consumer.acknowledge(r, RELEASE));
                records.stream().filter(r -> r.offset() < 6).forEach(r -> member.consumer.acknowledge(r, ACCEPT));
                String first = member.commit();
                return first + " " + seen(member.take(4));
            }
        });
        ALL.put("a-topic-deleted-and-made-again", queue -> {
            queue.produce(5);
            try (var member = queue.member()) {
                member.take(5);
                member.commit();
            }
            queue.admin.deleteTopics(List.of(queue.topic)).all().get();
            queue.untilGone();
            queue.create(queue.topic, 1);
            queue.produceIn(queue.topic, 3);
            try (var member = queue.member()) {
                return seen(member.take(3));
            }
        });
    }

    // --- transactions ------------------------------------------------------------------------

    private static void transactions() {
        for (String level : List.of("read_uncommitted", "read_committed")) {
            ALL.put("aborted-" + level, queue -> {
                queue.config("share.isolation.level", level);
                queue.inTransaction(3, false);
                queue.inTransaction(2, true);
                try (var member = queue.member()) {
                    return seen(member.take(level.equals("read_committed") ? 2 : 5));
                }
            });
            ALL.put("committed-" + level, queue -> {
                queue.config("share.isolation.level", level);
                queue.inTransaction(3, true);
                queue.inTransaction(2, true);
                try (var member = queue.member()) {
                    String got = seen(member.take(5));
                    member.commit();
                    return got + ", " + queue.offsets();
                }
            });
        }
        ALL.put("open-read_committed", queue -> {
            queue.config("share.isolation.level", "read_committed");
            queue.produce(2);
            try (var open = queue.openTransaction(3)) {
                try (var member = queue.member()) {
                    String before = seen(member.take(2)) + " then " + member.idle().size();
                    open.commitTransaction();
                    return before + " then " + seen(member.take(3));
                }
            }
        });
    }

    // --- refusals ----------------------------------------------------------------------------

    private static void refusals() {
        ALL.put("acknowledged-twice", queue -> {
            queue.produce(1);
            try (var member = queue.explicit()) {
                var record = member.take(1).get(0);
                member.consumer.acknowledge(record, ACCEPT);
                member.commit();
                return thrown(() -> member.consumer.acknowledge(record, ACCEPT));
            }
        });
        ALL.put("polled-without-acknowledging", queue -> {
            queue.produce(1);
            try (var member = queue.explicit()) {
                member.take(1);
                return thrown(() -> member.consumer.poll(Duration.ofMillis(100)));
            }
        });
        ALL.put("acknowledged-in-implicit-mode", queue -> {
            queue.produce(1);
            try (var member = queue.member()) {
                var record = member.take(1).get(0);
                return thrown(() -> member.consumer.acknowledge(record, ACCEPT));
            }
        });
        ALL.put("polled-without-subscription", queue -> {
            try (var member = queue.memberOf(queue.group)) {
                member.consumer.unsubscribe();
                return thrown(() -> member.consumer.poll(Duration.ofMillis(100)));
            }
        });
        ALL.put("an-empty-group-id", queue -> thrown(() -> queue.memberOf("").idleOrThrow()));
    }
}
