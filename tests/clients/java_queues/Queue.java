import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What a story works with: a topic and a share group that begins with the topic's first record. */
final class Queue implements AutoCloseable {
    private static final long DEADLINE_MS = 90_000;
    private static final long IDLE_MS = 7_000;

    final Admin admin;
    final String topic;
    final String group;
    private final String bootstrap;
    private final String prefix;
    private final KafkaProducer<String, String> producer;
    private boolean isMade;

    Queue(String bootstrap, String prefix) throws Exception {
        this.bootstrap = bootstrap;
        this.prefix = prefix;
        this.topic = name("topic");
        this.group = name("group");
        this.admin = Admin.create(properties());
        this.producer = producer();
        config("share.auto.offset.reset", "earliest");
    }

    private Properties properties(String... more) {
        Properties all = new Properties();
        all.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < more.length; i += 2) {
            all.put(more[i], more[i + 1]);
        }
        return all;
    }

    String name(String of) {
        return prefix + "-" + of;
    }

    private KafkaProducer<String, String> producer(String... more) {
        return new KafkaProducer<>(properties(more), new StringSerializer(), new StringSerializer());
    }

    void config(String name, String value) throws Exception {
        var resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        var change = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
    }

    static void until(String what, Callable<Boolean> holds) throws Exception {
        long end = System.currentTimeMillis() + DEADLINE_MS;
        while (!holds.call()) {
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException("not in time: " + what);
            }
            Thread.sleep(50);
        }
    }

    // --- topics ------------------------------------------------------------------------------

    void topic(int partitions) throws Exception {
        create(topic, partitions);
        isMade = true;
    }

    void create(String name, int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        until("the topic has leaders", () -> partitionsOf(name) == partitions);
    }

    private int partitionsOf(String name) throws Exception {
        try {
            return (int) admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions()
                .stream().filter(p -> p.leader() != null && !p.leader().isEmpty()).count();
        } catch (ExecutionException missing) {
            return 0;
        }
    }

    void untilPartitions(int count) throws Exception {
        until("partitions are there", () -> partitionsOf(topic) == count);
    }

    void untilGone() throws Exception {
        until("the topic is gone", () -> partitionsOf(topic) == 0);
        Thread.sleep(1_000);
    }

    String otherTopic(int count) throws Exception {
        String other = name("other");
        create(other, 1);
        produceIn(other, count);
        return other;
    }

    void deleteRecords(long before) throws Exception {
        var rows = Map.of(new TopicPartition(topic, 0), RecordsToDelete.beforeOffset(before));
        admin.deleteRecords(rows).all().get();
    }

    // --- records -----------------------------------------------------------------------------

    private void make() throws Exception {
        if (!isMade) {
            topic(1);
        }
    }

    void produce(int count, String... more) throws Exception {
        make();
        if (more.length == 0) {
            produceTo(0, count);
            return;
        }
        try (var own = producer(more)) {
            for (int at = 0; at < count; at++) {
                own.send(new ProducerRecord<>(topic, 0, null, "v" + (100 + at)));
            }
            own.flush();
        }
    }

    void produceTo(int partition, int count) throws Exception {
        for (int at = 0; at < count; at++) {
            producer.send(new ProducerRecord<>(topic, partition, null, "v" + (100 + at)));
        }
        producer.flush();
    }

    void produceIn(String name, int count) {
        for (int at = 0; at < count; at++) {
            producer.send(new ProducerRecord<>(name, 0, null, "v" + (100 + at)));
        }
        producer.flush();
    }

    void produceFull(String key, String value, String header, String content) throws Exception {
        make();
        var record = new ProducerRecord<>(topic, 0, key, value);
        record.headers().add(header, content.getBytes());
        producer.send(record).get();
    }

    KafkaProducer<String, String> openTransaction(int count) throws Exception {
        make();
        var own = producer("transactional.id", name("transaction"));
        own.initTransactions();
        own.beginTransaction();
        for (int at = 0; at < count; at++) {
            own.send(new ProducerRecord<>(topic, 0, null, "t" + at));
        }
        own.flush();
        return own;
    }

    void inTransaction(int count, boolean commits) throws Exception {
        try (var own = openTransaction(count)) {
            if (commits) {
                own.commitTransaction();
            } else {
                own.abortTransaction();
            }
        }
    }

    // --- offsets -----------------------------------------------------------------------------

    /** The lag of each partition of the topic. The start offset that is kept may be an older one. */
    String offsets() throws Exception {
        return offsetsOf(group);
    }

    String offsetsOf(String id) throws Exception {
        var asked = Map.of(id, new ListShareGroupOffsetsSpec());
        var rows = new TreeMap<Integer, String>();
        var found = admin.listShareGroupOffsets(asked).partitionsToOffsetInfo(id).get();
        for (var row : found.entrySet()) {
            var info = row.getValue();
            String text = info == null ? "none" : "lag " + info.lag().map(Object::toString).orElse("-");
            rows.put(row.getKey().partition(), text);
        }
        return rows.toString();
    }

    void alter(long offset) throws Exception {
        admin.alterShareGroupOffsets(group, Map.of(new TopicPartition(topic, 0), offset)).all().get();
    }

    // --- members -----------------------------------------------------------------------------

    Member member() throws Exception {
        make();
        return memberOf(group);
    }

    Member memberOf(String id, String... more) throws Exception {
        if (!id.equals(group) && !id.isEmpty()) {
            var resource = new ConfigResource(ConfigResource.Type.GROUP, id);
            var change = new AlterConfigOp(
                new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
        }
        make();
        return new Member(id, more);
    }

    Member explicit(String... more) throws Exception {
        String[] all = new String[more.length + 2];
        System.arraycopy(more, 0, all, 2, more.length);
        all[0] = "share.acknowledgement.mode";
        all[1] = "explicit";
        return memberOf(group, all);
    }

    /** A consumer without a group. */
    KafkaConsumer<String, String> reader() {
        return new KafkaConsumer<>(properties(), new StringDeserializer(), new StringDeserializer());
    }

    /** Reads as a member of another type of group, until it has a record or is refused. */
    void readAsConsumer(String protocol) throws Exception {
        make();
        var all = properties("group.id", group, "group.protocol", protocol, "auto.offset.reset", "earliest");
        try (var own = new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer())) {
            own.subscribe(List.of(topic));
            long end = System.currentTimeMillis() + IDLE_MS;
            while (System.currentTimeMillis() < end && own.poll(Duration.ofMillis(100)).isEmpty()) {
                continue;
            }
            own.commitSync();
        }
    }

    /** One member of a share group. */
    final class Member implements AutoCloseable {
        final KafkaShareConsumer<String, String> consumer;

        Member(String id, String... more) {
            Properties all = properties(more);
            all.put("group.id", id);
            all.put("client.id", "member");
            consumer = new KafkaShareConsumer<>(all, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(topic));
        }

        /** Polls until it has so many records. */
        List<ConsumerRecord<String, String>> take(int count) {
            var records = new ArrayList<ConsumerRecord<String, String>>();
            long end = System.currentTimeMillis() + DEADLINE_MS;
            while (records.size() < count && System.currentTimeMillis() < end) {
                try {
                    consumer.poll(Duration.ofMillis(200)).forEach(records::add);
                } catch (IllegalStateException early) {
                    // Explicit mode: records of an earlier poll are not acknowledged yet.
                    records.forEach(record -> consumer.acknowledge(record));
                    throw early;
                }
            }
            return records;
        }

        /** Polls for a while in which nothing should come. */
        List<ConsumerRecord<String, String>> idle() {
            var records = new ArrayList<ConsumerRecord<String, String>>();
            long end = System.currentTimeMillis() + IDLE_MS;
            while (System.currentTimeMillis() < end && records.isEmpty()) {
                consumer.poll(Duration.ofMillis(200)).forEach(records::add);
            }
            return records;
        }

        void idleOrThrow() {
            idle();
        }

        /** Commits; the errors of partitions, or "done". */
        String commit() {
            var errors = new ArrayList<String>();
            for (Optional<? extends Exception> error : consumer.commitSync(Duration.ofSeconds(30)).values()) {
                error.ifPresent(one -> errors.add(one.getClass().getSimpleName()));
            }
            return errors.isEmpty() ? "done" : errors.toString();
        }

        @Override
        public void close() {
            consumer.close(Duration.ofSeconds(10));
        }
    }

    @Override
    public void close() {
        producer.close();
        admin.close(Duration.ofSeconds(5));
    }
}
