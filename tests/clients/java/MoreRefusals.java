import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Rarer errors, many in one scenario. The outcome has a name of an error for each. */
final class MoreRefusals {
    private MoreRefusals() {}

    private static String error(World.Attempt attempt) throws Exception {
        return "" + World.failed(attempt).get("error");
    }

    static Map<String, Object> ofTopics(World world) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        String topic = world.topic("rare-topics", 1);
        String unknown = world.name("unknown");
        found.put("delete_unknown_topic", error(() ->
            world.admin.deleteTopics(List.of(unknown)).all().get()));
        found.put("partitions_of_unknown_topic", error(() ->
            world.admin.createPartitions(Map.of(unknown, NewPartitions.increaseTo(2))).all().get()));
        found.put("same_partitions", error(() ->
            world.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(1))).all().get()));
        found.put("no_partitions", error(() ->
            world.admin.createTopics(List.of(new NewTopic(unknown, 0, (short) 1))).all().get()));
        found.put("no_replicas", error(() ->
            world.admin.createTopics(List.of(new NewTopic(unknown, 1, (short) 0))).all().get()));
        found.put("replica_twice", error(() -> world.admin.createTopics(
            List.of(new NewTopic(unknown, Map.of(0, List.of(101, 101))))).all().get()));
        found.put("replica_unknown", error(() -> world.admin.createTopics(
            List.of(new NewTopic(unknown, Map.of(0, List.of(999))))).all().get()));
        found.put("partition_left_out", error(() -> world.admin.createTopics(
            List.of(new NewTopic(unknown, Map.of(1, List.of(101))))).all().get()));
        found.put("name_too_long", error(() -> world.admin.createTopics(
            List.of(new NewTopic("x".repeat(250), 1, (short) 1))).all().get()));
        found.put("config_unknown", error(() -> world.admin.createTopics(List.of(
            new NewTopic(unknown, 1, (short) 1).configs(Map.of("no.such", "1")))).all().get()));
        found.put("configs_of_unknown_topic", error(() -> world.admin.describeConfigs(
            List.of(new ConfigResource(ConfigResource.Type.TOPIC, unknown))).all().get()));
        found.put("alter_config_unknown", error(() -> world.admin.incrementalAlterConfigs(Map.of(
            new ConfigResource(ConfigResource.Type.TOPIC, topic),
            List.of(new AlterConfigOp(
                new ConfigEntry("no.such", "1"), AlterConfigOp.OpType.SET)))).all().get()));
        found.put("append_to_no_list", error(() -> world.admin.incrementalAlterConfigs(Map.of(
            new ConfigResource(ConfigResource.Type.TOPIC, topic),
            List.of(new AlterConfigOp(
                new ConfigEntry("retention.ms", "1"), AlterConfigOp.OpType.APPEND)))).all().get()));
        TopicPartition partition = new TopicPartition(topic, 0);
        found.put("delete_beyond_the_end", error(() -> world.admin.deleteRecords(
            Map.of(partition, RecordsToDelete.beforeOffset(99))).all().get()));
        found.put("election_not_needed", error(() -> world.admin.electLeaders(
            ElectionType.PREFERRED, Set.of(partition)).partitions().get()
            .get(partition).ifPresent(failure -> {
                throw (RuntimeException) failure;
            })));
        found.put("reassign_to_unknown", error(() -> world.admin.alterPartitionReassignments(
            Map.of(partition, Optional.of(
                new NewPartitionReassignment(List.of(999))))).all().get()));
        found.put("cancel_nothing", error(() -> world.admin.alterPartitionReassignments(
            Map.of(partition, Optional.empty())).all().get()));
        found.put("max_timestamp_of_nothing", world.admin.listOffsets(
            Map.of(partition, OffsetSpec.maxTimestamp())).partitionResult(partition).get()
            .offset());
        return found;
    }

    static Map<String, Object> ofGroups(World world) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        String topic = world.topic("rare-groups", 1);
        String unknown = world.name("unknown");
        world.fill(topic, 1, 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        found.put("describe_unknown_group", error(() ->
            world.admin.describeConsumerGroups(List.of(unknown)).all().get()));
        found.put("delete_unknown_group", error(() ->
            world.admin.deleteConsumerGroups(List.of(unknown)).all().get()));
        found.put("offsets_of_unknown_group", world.committed(unknown, topic));
        found.put("delete_offsets_of_unknown_group", error(() ->
            world.admin.deleteConsumerGroupOffsets(unknown, Set.of(partition)).all()
                .get()));
        found.put("session_too_short", error(() -> {
            try (var consumer = world.consumer("group.id", unknown, "session.timeout.ms", "500")) {
                consumer.subscribe(List.of(topic));
                World.take(consumer, 1);
            }
        }));
        try (var consumer = world.consumer("group.id", topic, "group.instance.id", "one",
                "partition.assignment.strategy",
                "org.apache.kafka.clients.consumer.RangeAssignor")) {
            consumer.subscribe(List.of(topic));
            World.take(consumer, 1);
            found.put("other_assignor", error(() -> {
                try (var other = world.consumer("group.id", topic, "partition.assignment.strategy",
                        "org.apache.kafka.clients.consumer.RoundRobinAssignor")) {
                    other.subscribe(List.of(topic));
                    other.poll(Duration.ofSeconds(10));
                }
            }));
            found.put("delete_offsets_of_subscribed_topic", error(() ->
                world.admin.deleteConsumerGroupOffsets(topic, Set.of(partition))
                    .partitionResult(partition).get()));
            found.put("alter_offsets_of_live_group", error(() ->
                world.admin.alterConsumerGroupOffsets(
                    topic, Map.of(partition, new OffsetAndMetadata(0))).all().get()));
            found.put("metadata_too_large", error(() -> consumer.commitSync(
                Map.of(partition, new OffsetAndMetadata(1, "x".repeat(5_000))))));
            found.put("commit_for_unknown_topic", error(() -> consumer.commitSync(
                Map.of(new TopicPartition(unknown, 0), new OffsetAndMetadata(1)),
                Duration.ofSeconds(1))));
        }
        return found;
    }

    static Map<String, Object> ofProducers(World world) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        String topic = world.topic("rare-producers", 1);
        String compacted =
            world.topic("rare-compacted", 1, Map.of("cleanup.policy", "compact"));
        try (var producer = world.producer()) {
            long ahead = System.currentTimeMillis() + 100_000_000;
            found.put("timestamp_ahead", error(() ->
                producer.send(new ProducerRecord<>(topic, 0, ahead, "k", "v")).get()));
            found.put("no_key_to_compacted", error(() ->
                producer.send(new ProducerRecord<>(compacted, 0, null, "v")).get()));
            found.put("to_an_internal_topic", error(() ->
                producer.send(new ProducerRecord<>("__consumer_offsets", 0, "k", "v")).get()));
        }
        found.put("transaction_too_long", error(() -> {
            try (var producer = world.producer(
                    "transactional.id", topic, "transaction.timeout.ms", "2000000")) {
                producer.initTransactions();
            }
        }));
        found.put("describe_unknown_transaction", error(() ->
            world.admin.describeTransactions(List.of(world.name("unknown"))).all().get()));
        found.put("fence_unknown_producer", error(() ->
            world.admin.fenceProducers(List.of(world.name("unknown"))).all().get()));
        return found;
    }
}
