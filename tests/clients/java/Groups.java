import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;

/** Consumers that share topics. */
final class Groups {
    private Groups() {}

    /** A member, polled by a thread of its own until closed. */
    static final class Member extends Thread implements AutoCloseable, ConsumerRebalanceListener {
        final TreeSet<Integer> held = new TreeSet<>();
        final AtomicInteger assigns = new AtomicInteger();
        final AtomicInteger revoked = new AtomicInteger();
        private final AtomicBoolean isClosing = new AtomicBoolean();
        private final KafkaConsumer<String, String> consumer;

        Member(World world, String group, String topic, String... more) {
            String[] all = new String[more.length + 4];
            System.arraycopy(more, 0, all, 4, more.length);
            all[0] = "group.id";
            all[1] = group;
            all[2] = "partition.assignment.strategy";
            all[3] = "org.apache.kafka.clients.consumer.RangeAssignor";
            consumer = world.consumer(all);
            consumer.subscribe(List.of(topic), this);
            start();
        }

        @Override
        public void run() {
            while (!isClosing.get()) {
                consumer.poll(Duration.ofMillis(50));
            }
            consumer.close();
        }

        @Override
        public synchronized void onPartitionsAssigned(Collection<TopicPartition> rows) {
            assigns.incrementAndGet();
            rows.forEach(row -> held.add(row.partition()));
        }

        @Override
        public synchronized void onPartitionsRevoked(Collection<TopicPartition> rows) {
            rows.forEach(row -> held.remove(row.partition()));
            revoked.addAndGet(rows.size());
        }

        synchronized List<Integer> partitions() {
            return List.copyOf(held);
        }

        @Override
        public void close() throws InterruptedException {
            isClosing.set(true);
            join();
        }
    }

    interface Commit {
        void run(KafkaConsumer<String, String> from, Map<TopicPartition, OffsetAndMetadata> offsets)
            throws Exception;
    }

    private static Map<String, Object> commit(World world, String of, Commit commit)
            throws Exception {
        String topic = world.topic(of, 1);
        String group = world.name(of);
        world.fill(topic, 1, 20);
        try (var first = world.consumer("group.id", group)) {
            first.subscribe(List.of(topic));
            World.take(first, 20);
            commit.run(first, Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(10)));
        }
        try (var second = world.consumer("group.id", group)) {
            second.subscribe(List.of(topic));
            long next = World.take(second, 1).get(0).offset();
            return World.outcome("committed", world.committed(group, topic), "next", next);
        }
    }

    static Map<String, Object> commitSync(World world) throws Exception {
        return commit(world, "commit-sync", KafkaConsumer::commitSync);
    }

    static Map<String, Object> commitAsync(World world) throws Exception {
        return commit(world, "commit-async", (consumer, offsets) -> {
            var answers = new ArrayBlockingQueue<String>(1);
            consumer.commitAsync(offsets, (rows, error) -> answers.add("" + error));
            World.until("the commit is answered", () -> {
                consumer.poll(Duration.ofMillis(20));
                return !answers.isEmpty();
            });
            if (!answers.take().equals("null")) {
                throw new IllegalStateException("the commit failed");
            }
        });
    }

    static Map<String, Object> pattern(World world) throws Exception {
        for (String last : List.of("a", "b")) {
            world.fill(world.topic("pattern-" + last, 1), 1, 1);
        }
        try (var consumer = world.consumer("group.id", world.name("pattern"))) {
            consumer.subscribe(Pattern.compile("^" + world.name("pattern-") + ".*"));
            var topics = World.take(consumer, 2).stream()
                .map(record -> record.topic().substring(world.name("").length())).sorted().toList();
            return World.outcome("topics", topics);
        }
    }

    /** KIP-848: the coordinator finds the topics, which clients then ask for by their ids. */
    static Map<String, Object> expression(World world) throws Exception {
        for (String last : List.of("a", "b")) {
            world.fill(world.topic("expression-" + last, 1), 1, 1);
        }
        String group = world.name("expression");
        String topic = world.name("expression-a");
        try (var consumer = world.consumer("group.id", group, "group.protocol", "consumer")) {
            consumer.subscribe(new SubscriptionPattern(world.name("expression-") + ".*"));
            var topics = World.take(consumer, 2).stream()
                .map(record -> record.topic().substring(world.name("").length())).sorted().toList();
            var id = world.admin.describeTopics(List.of(topic)).allTopicNames().get()
                .get(topic).topicId();
            var described = world.admin.describeTopics(TopicCollection.ofTopicIds(List.of(id)))
                .allTopicIds().get().get(id);
            world.admin.removeMembersFromConsumerGroup(
                group, new RemoveMembersFromConsumerGroupOptions()).all().get();
            return World.outcome(
                "topics", topics, "by_id", described.name().equals(topic), "removed", true);
        }
    }

    /** Two members once each of them has two of four partitions. */
    private static Member[] pair(World world, String of, String[] first, String[] second)
            throws Exception {
        String topic = world.topic(of, 4);
        Member one = new Member(world, world.name(of), topic, first);
        World.until("the first has all", () -> one.partitions().size() == 4);
        Member two = new Member(world, world.name(of), topic, second);
        World.until("each has two",
            () -> one.partitions().size() == 2 && two.partitions().size() == 2);
        return new Member[] {one, two};
    }

    static Map<String, Object> rebalance(World world) throws Exception {
        Member[] both = pair(world, "rebalance", new String[0], new String[0]);
        try (Member one = both[0]) {
            var together = List.of(one.partitions().size(), both[1].partitions().size());
            both[1].close();
            World.until("the other has all again", () -> one.partitions().size() == 4);
            return World.outcome("together", together, "alone", one.partitions().size());
        }
    }

    static Map<String, Object> staticMember(World world) throws Exception {
        String[] second = {"group.instance.id", "two"};
        Member[] both =
            pair(world, "static-member", new String[] {"group.instance.id", "one"}, second);
        try (Member one = both[0]) {
            var before = both[1].partitions();
            int assigns = one.assigns.get();
            both[1].close();
            String name = world.name("static-member");
            try (Member again = new Member(world, name, name, second)) {
                World.until("it is back", () -> again.partitions().size() == 2);
                return World.outcome(
                    "same_partitions", before.equals(again.partitions()),
                    "others_rebalanced", one.assigns.get() - assigns);
            }
        }
    }

    static Map<String, Object> cooperative(World world) throws Exception {
        String[] sticky =
            {"partition.assignment.strategy", CooperativeStickyAssignor.class.getName()};
        Member[] both = pair(world, "cooperative", sticky, sticky);
        try (Member one = both[0]; Member two = both[1]) {
            return World.outcome("kept", one.partitions().size(), "revoked", one.revoked.get());
        }
    }

    private static long committed(World world, String group, String topic) {
        try {
            return world.committed(group, topic);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    static Map<String, Object> transactionOffsets(World world) throws Exception {
        String topic = world.topic("transaction-offsets", 1);
        String group = world.name("transaction-offsets");
        var offsets = Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(10));
        try (var producer = world.producer("transactional.id", group)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "v"));
            producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(group));
            producer.abortTransaction();
            long afterAbort = world.committed(group, topic);
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "v"));
            producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(group));
            producer.commitTransaction();
            // A commit is answered before its markers are written.
            World.until("the markers", () -> committed(world, group, topic) >= 0);
            return World.outcome(
                "after_abort", afterAbort, "after_commit", world.committed(group, topic));
        }
    }

    private static boolean isListed(World world, String group) throws Exception {
        return world.admin.listGroups().all().get().stream()
            .anyMatch(row -> row.groupId().equals(group));
    }

    private static String state(World world, String group) {
        try {
            return world.admin.describeConsumerGroups(List.of(group)).all().get().get(group)
                .groupState().toString();
        } catch (ExecutionException | InterruptedException error) {
            return "" + error;
        }
    }

    static Map<String, Object> adminGroups(World world) throws Exception {
        String topic = world.topic("admin-groups", 1);
        String group = world.name("admin-groups");
        world.fill(topic, 1, 1);
        try (var consumer = world.consumer("group.id", group)) {
            consumer.subscribe(List.of(topic));
            World.take(consumer, 1);
            consumer.commitSync();
        }
        World.until("the group is empty", () -> state(world, group).equals("Empty"));
        boolean isListed = isListed(world, group);
        world.admin.deleteConsumerGroups(List.of(group)).all().get();
        return World.outcome(
            "state", "Empty", "listed", isListed, "listed_after_delete", isListed(world, group));
    }
}
