import static org.apache.kafka.clients.consumer.AcknowledgeType.ACCEPT;
import static org.apache.kafka.clients.consumer.AcknowledgeType.REJECT;
import static org.apache.kafka.clients.consumer.AcknowledgeType.RELEASE;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** Stories of dead letters (KIP-1191). */
final class DeadLetters {
    private static final String ENABLE = "errors.deadletterqueue.group.enable";
    private static final String NAME = "errors.deadletterqueue.topic.name";
    private static final String COPY = "errors.deadletterqueue.copy.record.enable";

    private DeadLetters() {}

    static void add(Map<String, Queues.Told> all) {
        all.put("dead-letter-of-a-rejected-record", queue -> {
            String letters = with(queue, 1, Map.of(ENABLE, "true"));
            queue.produce(3);
            reject(queue, 3, record -> record.offset() == 1);
            return read(queue, letters, 1) + " " + queue.offsets();
        });
        all.put("dead-letters-have-these-headers", queue -> {
            String letters = with(queue, 1, Map.of(ENABLE, "true"));
            queue.produce(1);
            reject(queue, 1, record -> true);
            var names = new ArrayList<String>();
            for (var header : records(queue, letters, 1).get(0).headers()) {
                names.add(header.key());
            }
            return names.toString();
        });
        all.put("dead-letters-with-copies", queue -> {
            String letters = with(queue, 1, Map.of(ENABLE, "true"));
            queue.config(COPY, "true");
            queue.produceFull("key", "value", "header", "content");
            queue.produce(2);
            reject(queue, 3, record -> true);
            return read(queue, letters, 3);
        });
        all.put("dead-letters-with-copies-of-gzip", queue -> {
            String letters = with(queue, 1, Map.of(ENABLE, "true"));
            queue.config(COPY, "true");
            queue.produce(4, "compression.type", "gzip", "linger.ms", "100");
            reject(queue, 4, record -> record.offset() % 2 == 0);
            return read(queue, letters, 2);
        });
        for (int limit : new int[] {2, 3}) {
            all.put("dead-letter-after-" + limit + "-deliveries", queue -> {
                String letters = with(queue, 1, Map.of(ENABLE, "true"));
                queue.config("share.delivery.count.limit", Integer.toString(limit));
                queue.produce(1);
                try (var member = queue.explicit()) {
                    for (int count = 0; count < limit; count++) {
                        member.consumer.acknowledge(member.take(1).get(0), RELEASE);
                        member.commit();
                    }
                }
                return read(queue, letters, 1) + " " + queue.offsets();
            });
        }
        all.put("dead-letter-rejected-at-the-last-delivery", queue -> {
            String letters = with(queue, 1, Map.of(ENABLE, "true"));
            queue.config("share.delivery.count.limit", "2");
            queue.produce(1);
            try (var member = queue.explicit()) {
                member.consumer.acknowledge(member.take(1).get(0), RELEASE);
                member.commit();
                member.consumer.acknowledge(member.take(1).get(0), REJECT);
                member.commit();
            }
            return read(queue, letters, 1);
        });
        all.put("no-dead-letter-of-an-accepted-record", queue -> {
            String letters = with(queue, 1, Map.of(ENABLE, "true"));
            queue.produce(2);
            reject(queue, 2, record -> false);
            return read(queue, letters, 0) + " " + queue.offsets();
        });
        all.put("dead-letters-of-many-partitions", queue -> {
            String letters = with(queue, 3, Map.of(ENABLE, "true"));
            queue.topic(4);
            for (int partition = 0; partition < 4; partition++) {
                queue.produceTo(partition, 1);
            }
            reject(queue, 4, record -> true);
            return read(queue, letters, 4);
        });
        all.put("dead-letters-of-500-records", queue -> {
            String letters = with(queue, 1, Map.of(ENABLE, "true"));
            queue.produce(500);
            reject(queue, 500, record -> true);
            var offsets = new TreeSet<Integer>();
            records(queue, letters, 500).forEach(record -> offsets.add(Integer.valueOf(text(record, "offset"))));
            return offsets.size() + " from " + offsets.first() + " to " + offsets.last();
        });
        all.put("dead-letter-topic-not-enabled", queue -> {
            String letters = with(queue, 1, Map.of());
            queue.produce(1);
            reject(queue, 1, record -> true);
            return read(queue, letters, 0) + " " + lag(queue);
        });
        all.put("dead-letter-topic-without-the-prefix", queue -> {
            String letters = queue.name("letters");
            make(queue, letters, 1, Map.of(ENABLE, "true"));
            queue.config(NAME, letters);
            queue.produce(1);
            reject(queue, 1, record -> true);
            return read(queue, letters, 0) + " " + lag(queue);
        });
        all.put("dead-letter-topic-missing", queue -> {
            queue.config(NAME, "dlq." + queue.name("missing"));
            queue.produce(1);
            reject(queue, 1, record -> true);
            return lag(queue) + " " + Queues.thrown(
                () -> queue.admin.describeTopics(List.of("dlq." + queue.name("missing"))).allTopicNames().get());
        });
        all.put("dead-letter-topic-named-as-an-internal-one", queue ->
            Queues.thrown(() -> queue.config(NAME, "__" + queue.name("letters"))));
        all.put("dead-letter-topic-taken-away", queue -> {
            String letters = with(queue, 1, Map.of(ENABLE, "true"));
            queue.config(NAME, "");
            queue.produce(1);
            reject(queue, 1, record -> true);
            return read(queue, letters, 0) + " " + lag(queue);
        });
    }

    interface Chosen {
        boolean is(ConsumerRecord<String, String> record);
    }

    /** A topic for the dead letters of the queue's group. */
    private static String with(Queue queue, int partitions, Map<String, String> configs) throws Exception {
        String name = "dlq." + queue.name("letters");
        make(queue, name, partitions, configs);
        queue.config(NAME, name);
        return name;
    }

    private static void make(Queue queue, String name, int partitions, Map<String, String> configs) throws Exception {
        var topic = new NewTopic(name, partitions, (short) 1).configs(configs);
        queue.admin.createTopics(List.of(topic)).all().get();
        Queue.until("the topic is there", () -> {
            try {
                var found = queue.admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
                return found.partitions().stream().allMatch(p -> p.leader() != null && !p.leader().isEmpty());
            } catch (ExecutionException missing) {
                return false;
            }
        });
    }

    private static void reject(Queue queue, int count, Chosen chosen) throws Exception {
        try (var member = queue.explicit()) {
            for (int done = 0; done < count;) {
                var taken = member.take(1);
                taken.forEach(r -> member.consumer.acknowledge(r, chosen.is(r) ? REJECT : ACCEPT));
                member.commit();
                done += taken.size();
            }
        }
    }

    private static String lag(Queue queue) throws Exception {
        Queue.until("the records are settled", () -> queue.offsets().contains("lag 0"));
        return queue.offsets();
    }

    /** What the dead letters say, in the order of their records. */
    private static String read(Queue queue, String topic, int count) throws Exception {
        var lines = new TreeSet<String>();
        for (var record : records(queue, topic, count)) {
            lines.add(
                text(record, "partition") + "/" + text(record, "offset") + " in " + record.partition()
                + " x" + text(record, "delivery.count") + " " + record.key() + "=" + record.value() + " '"
                + text(record, "message") + "' " + text(record, "topic").equals(queue.topic)
                + " " + text(record, "group").equals(queue.group));
        }
        return lines.toString();
    }

    private static String text(ConsumerRecord<String, String> record, String name) {
        var header = record.headers().lastHeader("__dlq.errors." + name);
        return header == null ? "none" : new String(header.value());
    }

    private static List<ConsumerRecord<String, String>> records(Queue queue, String topic, int count) throws Exception {
        var found = new ArrayList<ConsumerRecord<String, String>>();
        int partitions = queue.admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
        try (KafkaConsumer<String, String> consumer = queue.reader()) {
            var all = new ArrayList<TopicPartition>();
            for (int at = 0; at < partitions; at++) {
                all.add(new TopicPartition(topic, at));
            }
            consumer.assign(all);
            consumer.seekToBeginning(all);
            long end = System.currentTimeMillis() + (count == 0 ? 3_000 : 60_000);
            while (System.currentTimeMillis() < end && (count == 0 || found.size() < count)) {
                consumer.poll(Duration.ofMillis(200)).forEach(found::add);
            }
        }
        return found;
    }
}
