import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.protocol.Errors;

/** Topics through their life, and the errors that a client must see. */
final class Refusals {
    private Refusals() {}

    private static String retention(World world, ConfigResource resource) {
        try {
            return world.admin.describeConfigs(List.of(resource)).all().get().get(resource)
                .get("retention.ms").value();
        } catch (Exception error) {
            return "" + error;
        }
    }

    static Map<String, Object> adminTopics(World world) throws Exception {
        String topic = world.topic("admin-topics", 3, Map.of("retention.ms", "3600000"));
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        var described = world.described(topic, 3);
        String retention = retention(world, resource);
        var change = new AlterConfigOp(
            new ConfigEntry("retention.ms", "7200000"), AlterConfigOp.OpType.SET);
        world.admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
        World.until("it is altered", () -> retention(world, resource).equals("7200000"));
        world.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
        World.until("it has grown", () -> world.partitions(topic) == 5);
        world.admin.deleteTopics(List.of(topic)).all().get();
        // Judge and keep one answer: the next broker that is asked may not know of it yet.
        var gone = new Object[] {"NONE"};
        World.until("it is gone", () -> {
            gone[0] = errorOf(world, topic);
            return !gone[0].equals("NONE");
        });
        return World.outcome(
            "partitions", described.partitions().size(),
            "replicas", described.partitions().get(0).replicas().size(),
            "retention", retention,
            "altered", "7200000",
            "grown", 5,
            "after_delete", gone[0]);
    }

    private static Object errorOf(World world, String topic) {
        try {
            return describe(world, topic).get("error");
        } catch (Exception error) {
            return "" + error;
        }
    }

    private static Map<String, Object> describe(World world, String topic) throws Exception {
        return World.failed(() -> world.admin.describeTopics(List.of(topic)).allTopicNames().get());
    }

    private static Map<String, Object> create(World world, NewTopic topic) throws Exception {
        return World.failed(() -> world.admin.createTopics(List.of(topic)).all().get());
    }

    static Map<String, Object> unknownTopic(World world) throws Exception {
        return describe(world, world.name("unknown"));
    }

    static Map<String, Object> topicExists(World world) throws Exception {
        return create(world, new NewTopic(world.topic("exists", 1), 1, World.REPLICAS));
    }

    static Map<String, Object> topicName(World world) throws Exception {
        return create(world, new NewTopic(world.name("not a name!"), 1, World.REPLICAS));
    }

    static Map<String, Object> replicationFactor(World world) throws Exception {
        return create(world, new NewTopic(world.name("nine"), 1, (short) 9));
    }

    static Map<String, Object> config(World world) throws Exception {
        var topic = new NewTopic(world.name("config"), 1, World.REPLICAS);
        return create(world, topic.configs(Map.of("retention.ms", "never")));
    }

    static Map<String, Object> fewerPartitions(World world) throws Exception {
        var fewer = Map.of(world.topic("fewer", 3), NewPartitions.increaseTo(2));
        return World.failed(() -> world.admin.createPartitions(fewer).all().get());
    }

    static Map<String, Object> tooLarge(World world) throws Exception {
        String topic = world.topic("too-large", 1, Map.of("max.message.bytes", "1000"));
        try (var producer = world.producer()) {
            var record = new ProducerRecord<>(topic, "k", "x".repeat(5_000));
            return World.failed(() -> producer.send(record).get());
        }
    }

    static Map<String, Object> outOfRange(World world) throws Exception {
        String topic = world.topic("out-of-range", 1);
        world.fill(topic, 1, 1);
        try (var consumer = world.assigned(topic, "auto.offset.reset", "none")) {
            consumer.seek(new TopicPartition(topic, 0), 1_000);
            World.take(consumer, 1);
        } catch (OffsetOutOfRangeException error) {
            return World.outcome("error", Errors.OFFSET_OUT_OF_RANGE.name());
        }
        return World.outcome("error", "NONE");
    }

    private static KafkaProducer<String, String> begin(World world, String topic) throws Exception {
        var producer = world.producer("transactional.id", world.name("fenced"));
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, "k", "v")).get();
        return producer;
    }

    static Map<String, Object> fenced(World world) throws Exception {
        String topic = world.topic("fenced", 1);
        try (var old = begin(world, topic); var young = begin(world, topic)) {
            try {
                old.commitTransaction();
                return World.outcome("error", "NONE");
            } catch (ProducerFencedException | InvalidProducerEpochException error) {
                young.commitTransaction();
                return World.outcome("is_fenced", true);
            }
        }
    }

    /** A commit in a transaction on behalf of a member, with what it claims of itself. */
    private static Map<String, Object> badCommit(World world, String of, String member, int claimed)
            throws Exception {
        String topic = world.topic(of, 1);
        String group = world.name(of);
        world.fill(topic, 1, 1);
        var offsets = Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1));
        try (var consumer = world.consumer("group.id", group);
                var producer = world.producer("transactional.id", group)) {
            consumer.subscribe(List.of(topic));
            World.take(consumer, 1);
            String id = member == null ? consumer.groupMetadata().memberId() : member;
            producer.initTransactions();
            producer.beginTransaction();
            try {
                producer.sendOffsetsToTransaction(
                    offsets, new ConsumerGroupMetadata(group, claimed, id, Optional.empty()));
                producer.commitTransaction();
            } catch (CommitFailedException error) {
                return World.outcome("error", named(error));
            } catch (KafkaException error) {
                return World.outcome("error", named(error.getCause()));
            }
            return World.outcome("error", "NONE");
        }
    }

    /** Java's producer keeps only the text of these two errors. */
    private static String named(Throwable error) {
        for (Errors known : List.of(Errors.ILLEGAL_GENERATION, Errors.UNKNOWN_MEMBER_ID)) {
            if (error.getMessage().contains(known.message())) {
                return known.name();
            }
        }
        return "" + error;
    }

    static Map<String, Object> illegalGeneration(World world) throws Exception {
        return badCommit(world, "illegal-generation", null, 99);
    }

    static Map<String, Object> unknownMember(World world) throws Exception {
        return badCommit(world, "unknown-member", "nobody", 1);
    }

    static Map<String, Object> groupNotEmpty(World world) throws Exception {
        String topic = world.topic("group-not-empty", 1);
        String group = world.name("group-not-empty");
        world.fill(topic, 1, 1);
        try (var consumer = world.consumer("group.id", group)) {
            consumer.subscribe(List.of(topic));
            World.take(consumer, 1);
            return World.failed(() -> world.admin.deleteConsumerGroups(List.of(group)).all().get());
        }
    }

    /** The topic is there: all of three replicas must be in sync, and one broker is dead. */
    static Map<String, Object> notEnoughReplicas(World world) throws Exception {
        try (var producer = world.producer("retries", "0", "enable.idempotence", "false")) {
            var record = new ProducerRecord<>(world.name("not-enough-replicas"), "k", "v");
            return World.failed(() -> producer.send(record).get());
        }
    }
}
