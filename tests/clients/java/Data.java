import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Records written and read. */
final class Data {
    private Data() {}

    static Map<String, Object> codec(World world, String codec) throws Exception {
        String topic = world.topic("codec-" + codec, 1);
        try (var producer = world.producer("compression.type", codec, "linger.ms", "20")) {
            for (int i = 0; i < 20; i++) {
                String value = String.format("value-%02d-", i) + "x".repeat(100);
                var record = new ProducerRecord<>(topic, 0, "k" + i, value);
                record.headers().add("h", ("" + i).getBytes());
                producer.send(record);
            }
        }
        try (var consumer = world.assigned(topic)) {
            var found = World.take(consumer, 20);
            var last = found.get(19);
            return World.outcome(
                "records", found.size(),
                "key", last.key(),
                "header", new String(last.headers().lastHeader("h").value()),
                "value_bytes", last.value().length());
        }
    }

    static Map<String, Object> nulls(World world) throws Exception {
        String topic = world.topic("nulls", 1);
        try (var producer = world.producer()) {
            producer.send(new ProducerRecord<>(topic, 0, null, "v"));
            producer.send(new ProducerRecord<>(topic, 0, "k", null));
        }
        try (var consumer = world.assigned(topic)) {
            List<String> keys = new ArrayList<>();
            List<String> values = new ArrayList<>();
            for (var record : World.take(consumer, 2)) {
                keys.add(record.key());
                values.add(record.value());
            }
            return World.outcome("keys", keys, "values", values);
        }
    }

    static Map<String, Object> seekOffset(World world) throws Exception {
        String topic = world.topic("seek-offset", 1);
        world.fill(topic, 1, 20);
        try (var consumer = world.assigned(topic)) {
            World.take(consumer, 20);
            consumer.seek(new TopicPartition(topic, 0), 13);
            return World.outcome(
                "offsets", World.take(consumer, 7).stream().map(ConsumerRecord::offset).toList());
        }
    }

    static Map<String, Object> seekTime(World world) throws Exception {
        String topic = world.topic("seek-time", 1);
        long base = System.currentTimeMillis() / 1000 * 1000 - 3_600_000;
        try (var producer = world.producer()) {
            for (int i = 0; i < 10; i++) {
                producer.send(new ProducerRecord<>(topic, 0, base + i * 1000L, null, "v"));
            }
        }
        try (var consumer = world.assigned(topic)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            var found = consumer.offsetsForTimes(Map.of(partition, base + 5_500)).get(partition);
            consumer.seek(partition, found.offset());
            return World.outcome("offset", World.take(consumer, 1).get(0).offset());
        }
    }

    static Map<String, Object> pause(World world) throws Exception {
        String topic = world.topic("pause", 2);
        world.fill(topic, 2, 5);
        try (var consumer = world.consumer()) {
            TopicPartition first = new TopicPartition(topic, 0);
            consumer.assign(List.of(first, new TopicPartition(topic, 1)));
            consumer.pause(List.of(first));
            var before = partitions(World.take(consumer, 5));
            consumer.resume(List.of(first));
            return World.outcome("first", before, "then", partitions(World.take(consumer, 5)));
        }
    }

    private static List<Integer> partitions(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::partition).distinct().toList();
    }

    static Map<String, Object> idempotent(World world) throws Exception {
        String topic = world.topic("idempotent", 1);
        try (var producer = world.producer("enable.idempotence", "true", "batch.size", "200")) {
            for (int i = 0; i < 200; i++) {
                producer.send(new ProducerRecord<>(topic, 0, null, "" + i));
            }
        }
        try (var consumer = world.assigned(topic)) {
            var found = World.take(consumer, 200);
            boolean isInOrder = true;
            for (int i = 0; i < 200; i++) {
                isInOrder &= found.get(i).value().equals("" + i);
            }
            return World.outcome("records", found.size(), "in_order", isInOrder);
        }
    }

    static Map<String, Object> transaction(World world) throws Exception {
        String topic = world.topic("transaction", 1);
        try (var producer = world.producer("transactional.id", world.name("transaction"))) {
            producer.initTransactions();
            for (int number = 0; number < 3; number++) {
                producer.beginTransaction();
                for (int i = 0; i < 5; i++) {
                    producer.send(new ProducerRecord<>(topic, 0, null, number + "/" + i)).get();
                }
                if (number == 1) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        try (var committed = world.assigned(topic, "isolation.level", "read_committed");
                var all = world.assigned(topic, "isolation.level", "read_uncommitted")) {
            var seen = World.take(committed, 10).stream()
                .map(record -> record.value().split("/")[0])
                .collect(Collectors.toCollection(LinkedHashSet::new));
            return World.outcome("committed", seen, "uncommitted", World.take(all, 15).size());
        }
    }

    private static long offset(World world, String topic, OffsetSpec spec) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        return world.admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get()
            .offset();
    }

    static Map<String, Object> listOffsets(World world) throws Exception {
        String topic = world.topic("list-offsets", 1);
        world.fill(topic, 1, 20);
        return World.outcome(
            "earliest", offset(world, topic, OffsetSpec.earliest()),
            "latest", offset(world, topic, OffsetSpec.latest()));
    }

    static Map<String, Object> deleteRecords(World world) throws Exception {
        String topic = world.topic("delete-records", 1);
        world.fill(topic, 1, 20);
        TopicPartition partition = new TopicPartition(topic, 0);
        var deleted = world.admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(7)));
        try (var consumer = world.assigned(topic)) {
            return World.outcome(
                "low", deleted.lowWatermarks().get(partition).get().lowWatermark(),
                "earliest", offset(world, topic, OffsetSpec.earliest()),
                "first", World.take(consumer, 1).get(0).offset());
        }
    }
}
